"""The ten tasks of docs/tasks.md, by keys that the screen names; the answers are counted in the Snapshot."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpuconsole.model.cluster import Namespace, Node
from gpuconsole.model.commands import SetQuota, Submit
from gpuconsole.model.events import HistoryEventKind
from gpuconsole.model.job import Job
from gpuconsole.model.labels import LabelSelector
from gpuconsole.model.objects import Object
from gpuconsole.model.pod_template import Container, PodSet, PodTemplate
from gpuconsole.model.queues import (
    ClusterQueue,
    ClusterQueuePreemption,
    Cohort,
    FlavorQuotas,
    LocalQueue,
    PreemptionPolicy,
    Quota,
    ResourceFlavor,
    ResourceGroup,
    WorkloadPriorityClass,
)
from gpuconsole.model.resources import GPU
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.services.console import Console
from gpuconsole.ui.actions.keys import spell
from gpuconsole.ui.job_templates import TEMPLATES
from gpuconsole.ui.names import called
from gpuconsole.ui.screens.base import ConsoleScreen
from gpuconsole.ui.screens.submit import SubmitScreen
from gpuconsole.ui.screens.whatif import WhatIfScreen
from gpuconsole.ui.widgets.dialogs import ChoiceDialog, Confirm
from tests.support.console_clusters import a_job, simulated
from tests.support.console_stage import Stage, staged

SIZE = (160, 50)
MIG = "nvidia.com/mig-1g.10gb"
FLAVOR = "a100-80gb"


@dataclass(frozen=True)
class Org:
    """research borrows from prod, in whole GPUs or in MIG instances."""

    resource: str
    each: int
    """How many of them a node has; research has as much quota as one node, prod as two."""

    @property
    def jobs(self) -> list[tuple[str, int, str, str]]:
        """(name, how many it requests, namespace, priority class), in the order in which they come."""
        return [
            ("tune", 4, "research", "research-default"),
            ("embed", 2, "research", "research-default"),
            ("serve", self.each, "prod", "production"),
            ("rlhf", self.each - 2, "research", "research-default"),
        ]

    def objects(self, reclaim: PreemptionPolicy) -> list[Object]:
        preemption = ClusterQueuePreemption(PreemptionPolicy.LOWER_PRIORITY, reclaim)
        return [
            *(Namespace(name=name, labels={"kubernetes.io/metadata.name": name}) for name in ("research", "prod")),
            WorkloadPriorityClass(name="research-default", value=500),
            WorkloadPriorityClass(name="production", value=10_000),
            *(self.node(f"node-{n}") for n in (1, 2, 3)),
            ResourceFlavor(name=FLAVOR, node_labels={"accelerator": FLAVOR}),
            Cohort(name="org"),
            *(
                ClusterQueue(
                    name=f"cq-{name}",
                    cohort="org",
                    namespace_selector=LabelSelector(),
                    resource_groups=(
                        ResourceGroup((self.resource,), (FlavorQuotas(FLAVOR, {self.resource: Quota(nominal)}),)),
                    ),
                    preemption=preemption,
                )
                for name, nominal in (("research", self.each), ("prod", 2 * self.each))
            ),
            *(
                LocalQueue(namespace=name, name=f"lq-{name}", cluster_queue=f"cq-{name}")
                for name in ("research", "prod")
            ),
        ]

    def node(self, name: str) -> Node:
        room = {"cpu": 128_000, "memory": 2**40, "pods": 110, self.resource: self.each}
        labels = {
            "kubernetes.io/hostname": name,
            "accelerator": FLAVOR,
            "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
        }
        return Node(name=name, labels=labels, capacity=room, allocatable=room)

    def job(self, name: str, count: int, namespace: str, rank: str, pods: int = 1) -> Job:
        request = {self.resource: count}
        template = PodTemplate(containers=(Container(requests=request, limits=request),), restart_policy="Never")
        return replace(a_job(name, count, namespace, rank), pod_sets=(PodSet(count=pods, template=template),))

    def console(self, *more: tuple[str, int, str, str], reclaim: PreemptionPolicy = PreemptionPolicy.NEVER) -> Console:
        console = simulated(self.objects(reclaim))
        for name, count, namespace, rank in (*self.jobs, *more):
            console.submit(Submit((self.job(name, count, namespace, rank),)))
            for _ in range(10):
                console.tick(1.0)
        return console


WHOLE, INSTANCES = Org(GPU, 8), Org(MIG, 7)
LATE = "late"


def late(org: Org) -> tuple[str, int, str, str]:
    """A job that needs a whole node, and has priority."""
    return (LATE, org.each, "prod", "production")


TASKS = Path(__file__).parents[2] / "docs" / "tasks.md"


def documented(task: str) -> tuple[list[tuple[str, str]], int]:
    """The steps that docs/tasks.md lists for a task, keys and texts to type alike, and the number of keys it states."""
    for line in TASKS.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0] == task:
            return re.findall(r"`([^`]+)`|\*([^*]+)\*", cells[1]), int(cells[2])
    raise AssertionError(f"docs/tasks.md has no task {task!r}")


class Operator(Stage):
    """An operator who presses only keys that the screen names, and whose keys are written down."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage.app, stage._pilot)
        self.steps: list[tuple[str, str]] = []
        """What was pressed or typed, as docs/tasks.md lists it: (key, "") or ("", text)."""

    async def use(self, *keys: str) -> None:
        """Press keys, each of which the footer, the line of views or the dialog names then, except ↑ and ↓."""
        for key in keys:
            assert self._is_named(key), f"nothing on the screen names {spell(key)}:\n{self.text}"
            self.steps.append((spell(key), ""))
            await self.press(key)

    async def type(self, text: str, what: str) -> None:
        """Type a text into a field; docs/tasks.md says only what it is."""
        self.steps.append(("", what))
        await self.write(text)

    def _is_named(self, key: str) -> bool:
        if key in ("up", "down"):
            return True
        if isinstance(self.app.screen, ConsoleScreen):
            footer, views = self.lines[-1], self.lines[1]
            return f" {spell(key)} " in f" {footer} " or (key.isdigit() and f" {key} " in f" {views} ")
        if isinstance(self.app.screen, ChoiceDialog):
            return key == "enter" or re.search(rf"[│▌] +{re.escape(key)} ", self.text) is not None
        if isinstance(self.app.screen, Confirm):
            return f"({key})" in self.text
        return key in ("tab", "enter", "escape")


@asynccontextmanager
async def performed(task: str, console: Console, instead: str = "") -> AsyncIterator[Operator]:
    """Perform a task from the first screen on: by the steps of docs/tasks.md, and with no more keys than it states.

    `instead` is the choice that takes the place of the one on the page, on a cluster with other things to choose from.
    """
    steps, count = documented(task)
    async with staged(console, SIZE) as stage:
        operator = Operator(stage)
        yield operator
        done = [step for step in operator.steps if step != (instead, "")]
        assert done == [step for step in steps if not instead or not step[0].isdigit()]
        assert sum(bool(key) for key, _ in operator.steps) == count


async def appears(stage: Stage, words: str) -> None:
    """Wait until an answer that is computed in the background has come, half a minute at most."""
    for _ in range(150):
        if words in stage.text:
            return
        await stage.wait(0.2)
    raise AssertionError(f"{words} never appeared in\n{stage.text}")


def used(snapshot: Snapshot, org: Org, queue: str) -> int:
    return sum(
        given.usage.get(org.resource, 0)
        for workload in snapshot.workloads.all()
        if workload.admission is not None and workload.admission.cluster_queue == queue
        for given in workload.admission.pod_sets
    )


def nominal(snapshot: Snapshot, org: Org, queue: str) -> int:
    (group,) = snapshot.cluster_queues[queue].resource_groups
    return group.flavors[0].resources[org.resource].nominal


def free_by_node(snapshot: Snapshot, org: Org) -> dict[str, int]:
    free = {node.name: node.allocatable[org.resource] for node in snapshot.nodes.all()}
    for pod in snapshot.pods.all():
        if pod.node and not pod.done:
            free[pod.node] -= pod.template.requests.get(org.resource, 0)
    return free


BOTH = pytest.mark.parametrize("org", [WHOLE, INSTANCES], ids=["whole GPUs", "MIG only"])


@BOTH
async def test_which_queue_is_starved_and_why(org: Org) -> None:
    async with performed("Which queue is starved, and why", org.console(late(org))) as stage:
        snapshot = stage.app.cluster.snapshot
        await stage.use("2", "down")
        queues = [queue.name for queue in snapshot.cluster_queues.all()]
        over = {name: used(snapshot, org, name) - nominal(snapshot, org, name) for name in queues}
        (starved,) = (name for name, amount in over.items() if amount < 0)
        (borrower,) = (name for name, amount in over.items() if amount > 0)
        said = stage.line(f"{starved} is starved")
        assert "1 pending" in said
        assert f"uses {used(snapshot, org, starved)} of its {nominal(snapshot, org, starved)} {FLAVOR}" in said
        assert f"while {borrower} borrows {over[borrower]}" in said
        assert "starved" in stage.line(f"▌   ▾ {starved}")
        assert "starved" not in stage.line(f"▾ {borrower}")


@BOTH
async def test_who_borrows_from_whom(org: Org) -> None:
    async with performed("Who borrows from whom", org.console()) as stage:
        snapshot = stage.app.cluster.snapshot
        borrowed = used(snapshot, org, "cq-research") - nominal(snapshot, org, "cq-research")
        assert borrowed > 0
        await stage.use("b")
        await appears(stage, "LENDER")
        resource = [] if org is WHOLE else [org.resource]
        row = stage.line("cq-prod cq-research").split()
        assert row[1 : 5 + len(resource)] == ["cq-prod", "cq-research", FLAVOR, *resource, str(borrowed)]


@BOTH
async def test_why_a_workload_is_pending_and_what_would_admit_it(org: Org) -> None:
    async with performed("Why a workload is pending, and what admits it", org.console(late(org))) as stage:
        snapshot = stage.app.cluster.snapshot
        await stage.use("3", "x")
        await appears(stage, "changes tested")
        whole = sum(nominal(snapshot, org, queue) for queue in ("cq-prod", "cq-research"))
        free = whole - sum(used(snapshot, org, queue) for queue in ("cq-prod", "cq-research"))
        assert f"needs {org.each}, available {free} · {org.each - free} more needed" in stage.text
        nodes, lines = free_by_node(snapshot, org), stage.lines
        for name, count, namespace, _ in org.jobs:
            told = [n for n, text in enumerate(lines) if f"✓ {namespace}/{name} ends" in text]
            (pod,) = (pod for pod in snapshot.pods.all() if pod.job == f"Job/{namespace}/{name}")
            if free + count < org.each:
                assert told == [], f"the end of {name} frees too little quota"
            elif told:
                fits = nodes[pod.node] + count >= org.each
                assert ("⚠ admitted, but after" not in lines[told[0] + 1]) is fits, f"{name} leaves room: {fits}"
        assert stage.line("✓ research/rlhf ends")


SUBMITTED = pytest.mark.parametrize(
    ("org", "template", "sizes"),
    [(WHOLE, "training", ("8", "1")), (INSTANCES, "sweep", ("1", "8"))],
    ids=["whole GPUs", "MIG only"],
)


@SUBMITTED
async def test_eight_gpus_are_submitted_and_admitted(org: Org, template: str, sizes: tuple[str, str]) -> None:
    """Eight whole GPUs in one pod, or eight MIG instances: no node has more than seven."""
    console = simulated(org.objects(PreemptionPolicy.NEVER))
    choice = str([known.id for known in TEMPLATES].index(template) + 1)
    async with performed("Submit a job of 8 GPUs", console, choice if org is INSTANCES else "") as stage:
        await stage.use("n", "ctrl+t", choice)
        await stage.wait(0.3)
        values = stage.screen(SubmitScreen).form.values
        assert (values["gpus"], values["pods"]) == sizes
        assert any(f"✓ 8 {noun} fit available quota now" in stage.text for noun in ("GPUs", "MIG 1g.10gb instances"))
        await stage.use("ctrl+s")
        stage.screen(Confirm)
        await stage.use("y")
        await stage.tick(times=5)
        snapshot = console.snapshot
        (workload,) = snapshot.workloads.all()
        assert (workload.admitted, workload.owner) == (True, f"Job/{values['namespace']}/{values['name']}")
        assert used(snapshot, org, workload.cluster_queue) == 8
        assert sum(free_by_node(snapshot, org).values()) == 3 * org.each - 8
        assert f"{values['namespace']}/{values['name']}" in stage.line("● running")
        await stage.press("escape", "3")
        assert "running" in stage.line(values["name"])


@BOTH
async def test_who_was_preempted_in_the_last_hour_by_whom(org: Org) -> None:
    console = org.console(late(org), reclaim=PreemptionPolicy.ANY)
    async with performed("Who was preempted in the last hour, and by whom", console) as stage:
        lines = [row for row in stage.app.cluster.snapshot.recent if row.what is HistoryEventKind.PREEMPTED]
        await stage.use("6")
        assert [(called(row.workload), called(row.by)) for row in lines] == [("research/rlhf", "prod/late")]
        for row in lines:
            assert f"← {called(row.by)}" in stage.line(f"✖ {called(row.workload)}")
        assert f"{len(lines)} in the last hour" in stage.text


@BOTH
async def test_a_job_of_high_priority_is_rehearsed(org: Org) -> None:
    """A copy of prod/serve: what it preempts in the rehearsal is what it preempts when it is submitted."""
    console = org.console(reclaim=PreemptionPolicy.ANY)
    async with performed("Rehearse a job of high priority", console) as stage:
        await stage.use(":")
        await stage.type("wl /serve", "wl /name")
        await stage.use("enter", "D")
        await stage.wait(0.3)
        values = stage.screen(SubmitScreen).form.values
        assert (values["gpus"], values["priority"]) == (str(org.each), "production")
        await stage.use("ctrl+o")
        stage.screen(WhatIfScreen)
        await stage.use("enter")
        await appears(stage, "preempts")
        rehearsed = stage.text
    real = org.console((values["name"], org.each, "prod", "production"), reclaim=PreemptionPolicy.ANY)
    victims = {called(row.workload) for row in real.snapshot.recent if row.what is HistoryEventKind.PREEMPTED}
    assert victims == {"research/rlhf"}
    verdict = next(line for line in rehearsed.splitlines() if "preempts" in line)
    assert all(victim in verdict for victim in victims)


@BOTH
async def test_fragmentation_and_the_largest_gang(org: Org) -> None:
    async with performed("How fragmented the GPUs are", org.console()) as stage:
        snapshot = stage.app.cluster.snapshot
        await stage.use("F")
        await appears(stage, "LARGEST GANG")
        free = free_by_node(snapshot, org).values()
        gangs = [(size * sum(room // size for room in free), size) for size in (1, 2, 4, 8)]
        total, size = max(gangs)
        assert f" {total // size} × {size} " in stage.line(f"▌ {FLAVOR}")
        assert f" {sum(free)} " in stage.line(f"▌ {FLAVOR}")
        assert re.search(rf" {sum(free)} +{max(free)} ", stage.line(f"▌ {FLAVOR}")), "the largest pod is of one node"
        if org is WHOLE:
            pods = [count for _, count, _, _ in org.jobs]
            fragments = sum(room for room in free for pod in pods if pod > room) / len(pods)
            assert f"{fragments:.1f} of {sum(free)} idle GPUs are fragmented" in stage.text


async def test_the_mig_layout_of_the_node_of_a_workload() -> None:
    async with performed("The MIG layout of the node of a workload", INSTANCES.console()) as stage:
        (pod,) = (pod for pod in stage.app.cluster.snapshot.pods.all() if pod.job == "Job/research/tune")
        await stage.use(":")
        await stage.type("wl /tune", "wl /name")
        await stage.use("enter", "enter")
        assert pod.node in stage.line("tune-0")
        await stage.use("enter")
        rows = [
            line
            for line in stage.lines
            if "1g.10gb" in line and re.search(r"[▣▲○] (nominal quota|borrowed|idle)", line)
        ]
        assert sum("research/tune" in line for line in rows) == len(pod.slices) == 4
        assert sum("○ idle" in line for line in rows) == free_by_node(stage.app.cluster.snapshot, INSTANCES)[pod.node]


@BOTH
async def test_a_quota_is_changed_in_a_what_if(org: Org) -> None:
    """More quota for prod admits its job, and moves the wait to the nodes: none of them has room for it."""
    async with performed("What a change of quota would do", org.console(late(org))) as stage:
        await stage.use("2", "down", "i", "e", "enter")
        await stage.press("ctrl+u")
        await stage.type(str(3 * org.each), "quota")
        await stage.use("enter")
        stage.screen(WhatIfScreen)
        await stage.use("enter")
        await appears(stage, "VERDICT")
        assert f"{2 * org.each} → {3 * org.each}" in stage.text
        waits = [stage.line(words).split()[-3:] for words in ("pending on quota", "on scheduling")]
        assert nominal(stage.app.cluster.snapshot, org, "cq-prod") == 2 * org.each, "the cluster itself stays as it is"
    found = []
    for change in ((), (SetQuota("cq-prod", FLAVOR, org.resource, 3 * org.each),)):
        console = org.console(late(org))
        for command in change:
            console.submit(command)
        for _ in range(10):
            console.tick(1.0)
        snapshot = console.snapshot
        pending = sum(not workload.reserved for workload in snapshot.workloads.all())
        found.append((pending, sum(not pod.node for pod in snapshot.pods.all())))
    (quota, nodes), (less, more) = found
    assert waits == [[str(quota), str(less), "-1"], [str(nodes), str(more), "+1"]]


async def test_a_table_is_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with performed("Export a table", WHOLE.console(late(WHOLE))) as stage:
        await stage.use(":")
        await stage.type("export queues.csv", "export file.csv")
        await stage.use("enter")
    written = (tmp_path / "queues.csv").read_text(encoding="utf-8")
    assert all(queue in written for queue in ("cq-research", "cq-prod"))


def test_each_task_of_the_page_is_performed_here() -> None:
    tasks = [
        line.split("|")[1].strip() for line in TASKS.read_text(encoding="utf-8").splitlines() if line.startswith("| ")
    ]
    source = Path(__file__).read_text(encoding="utf-8")
    assert len(tasks[2:]) == 10
    assert [task for task in tasks[2:] if f'performed("{task}"' not in source] == []
