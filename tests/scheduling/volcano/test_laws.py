"""Laws of Volcano's sessions, whatever waits: statements are undone, gangs are whole, nothing is given twice."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.cluster import Node, Pod, PodPhase, PriorityClass
from gpuconsole.model.events import Bind, EvictPod, PlacementDecision
from gpuconsole.model.pod_template import Container, PodTemplate
from gpuconsole.model.resources import CPU, GPU, PODS
from gpuconsole.model.volcano import PodGroup, VolcanoQueue
from gpuconsole.scheduling.volcano.actions import ACTIONS
from gpuconsole.scheduling.volcano.api.task import GROUP_NAME, TaskStatus
from gpuconsole.scheduling.volcano.config import VolcanoConfiguration, VolcanoPolicy, tier_of
from gpuconsole.scheduling.volcano.engine import VolcanoPlacement
from gpuconsole.scheduling.volcano.scheduler_conf import PLUGINS
from gpuconsole.scheduling.volcano.session import PlacementRejected, VolcanoSession, VolcanoStatement
from gpuconsole.scheduling.volcano.store import VolcanoStore

CONF = """\
actions: "enqueue, allocate, preempt, reclaim, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: overcommit}, {name: drf}, {name: predicates}, {name: proportion}, {name: nodeorder}, {name: binpack}]
"""
TIERS = (
    tier_of("priority", "gang", "conformance"),
    tier_of("overcommit", "drf", "predicates", "proportion", "nodeorder", "binpack", "deviceshare"),
)
CLASSES = (PriorityClass(name="low", value=1), PriorityClass(name="high", value=100))
law = settings(max_examples=60, deadline=None)


class Gang(Struct, frozen=True):
    """Pods of so many GPUs each, so many of which have to start together."""

    sizes: tuple[int, ...]
    least: int
    queue: str
    priority: str


gang_lists = st.lists(
    st.builds(
        lambda sizes, least, queue, priority: Gang(tuple(sizes), min(least, len(sizes)), queue, priority),
        st.lists(st.integers(0, 4), min_size=1, max_size=4),
        st.integers(1, 4),
        st.sampled_from(["a", "b"]),
        st.sampled_from(["low", "high"]),
    ),
    min_size=1,
    max_size=5,
)
machine_lists = st.lists(st.integers(1, 6), min_size=1, max_size=3)


def objects(gangs: Sequence[Gang], machines: Sequence[int]) -> list[Any]:
    found: list[Any] = [*CLASSES, VolcanoQueue(name="a", weight=1), VolcanoQueue(name="b", weight=2)]
    for number, gpus in enumerate(machines):
        room = {CPU: 16_000, GPU: gpus, PODS: 6}
        found.append(Node(name=f"n{number}", allocatable=room, capacity=room))
    for number, gang in enumerate(gangs):
        name = f"g{number}"
        found.append(
            PodGroup(name=name, queue=gang.queue, min_member=gang.least, priority_class=gang.priority, phase="Inqueue")
        )
        for index, size in enumerate(gang.sizes):
            template = PodTemplate(
                containers=(Container(requests={CPU: 1000, GPU: size}),), priority_class=gang.priority
            )
            value = next(one.value for one in CLASSES if one.name == gang.priority)
            notes = {GROUP_NAME: name}
            found.append(Pod(name=f"{name}-{index}", template=template, annotations=notes, priority=value))
    return found


def picture(session: VolcanoSession) -> dict[str, Any]:
    """All that a session knows of nodes and tasks, and what its plugins say about queues and jobs."""
    return {
        "nodes": {
            name: (node.idle, node.used, node.releasing, node.pipelined, {k: t.status for k, t in node.tasks.items()})
            for name, node in session.nodes.items()
        },
        "tasks": {
            task.key: (task.status, task.node_name) for job in session.jobs.values() for task in job.tasks.values()
        },
        "sums": {uid: (job.allocated, job.total_request) for uid, job in session.jobs.items()},
        "ready": {uid: (session.job_ready(job), session.job_pipelined(job)) for uid, job in session.jobs.items()},
        "queues": {job.queue: session.overused(session.queues[job.queue]) for job in session.jobs.values()},
        "placed": {name: sorted(session.node_pods.pods_on(name)) for name in session.nodes},
        "promised": (dict(session.assumed_volumes), dict(session.claim_allocations)),
    }


def opened(gangs: Sequence[Gang], machines: Sequence[int]) -> VolcanoSession:
    store = VolcanoStore("a")
    for thing in objects(gangs, machines):
        store.apply(thing)
    return VolcanoSession(VolcanoConfiguration(tiers=TIERS), store.cluster(0), plugins=PLUGINS)


@law
@given(gang_lists, machine_lists, st.data())
def test_what_a_statement_does_is_undone_when_it_is_discarded(
    gangs: list[Gang], machines: list[int], data: st.DataObject
) -> None:
    session = opened(gangs, machines)
    ACTIONS["allocate"](session)
    for job in session.jobs.values():
        for task in list(job.tasks_with_status(TaskStatus.BINDING).values()):
            session.update_status_everywhere(task, TaskStatus.RUNNING)
    before = picture(session)
    statement = VolcanoStatement(session)
    tasks = sorted((task for job in session.jobs.values() for task in job.tasks.values()), key=lambda task: task.key)
    for task in data.draw(st.permutations(tasks)):
        node = data.draw(st.sampled_from(session.node_list))
        if task.status is TaskStatus.RUNNING:
            statement.evict(task, "preempt")
        elif task.status is TaskStatus.PENDING:
            try:
                if data.draw(st.booleans()):
                    statement.pipeline(task, node.name, eviction_occurred=False)
                elif not task.init_request.exceeded_names(node.idle):
                    statement.allocate(task, node)
            except PlacementRejected:
                pass
    statement.discard()
    assert picture(session) == before


class Life:
    """An engine whose decisions are carried out; victims are gone at once."""

    def __init__(self, gangs: Sequence[Gang], machines: Sequence[int]) -> None:
        self.engine = VolcanoPlacement(VolcanoPolicy(conf=CONF))
        self.things = objects(gangs, machines)
        self.pods = {thing.key: thing for thing in self.things if isinstance(thing, Pod)}
        self.nodes = {thing.name: thing for thing in self.things if isinstance(thing, Node)}
        self.least = {f"g{number}": gang.least for number, gang in enumerate(gangs)}
        self.now = 0
        for thing in self.things:
            self.engine.apply(thing, 0)

    def step(self) -> list[PlacementDecision]:
        self.now += 1
        decisions = self.engine.schedule(self.now)
        started = set()
        for decision in decisions:
            if isinstance(decision, Bind):
                pod = replace(self.pods[decision.pod], node=decision.node, gpus=decision.gpus, phase=PodPhase.RUNNING)
                self.pods[pod.key] = pod
                started.add(pod.annotations[GROUP_NAME])
                self.engine.apply(pod, self.now)
        self.check(started)
        for decision in decisions:
            if isinstance(decision, EvictPod):
                del self.pods[decision.pod]
                self.engine.delete("pods", decision.pod, self.now)
        return decisions

    def check(self, started: set[str]) -> None:
        for name, node in self.nodes.items():
            there = [pod for pod in self.pods.values() if pod.node == name]
            owners = Counter(index for pod in there for index in pod.gpus)
            assert all(count == 1 for count in owners.values())
            used = Counter({PODS: len(there)})
            for pod in there:
                used.update(pod.template.requests)
                assert len(pod.gpus) == pod.template.requests[GPU]
            assert all(used[resource] <= amount for resource, amount in node.allocatable.items())
        for group in started:
            running = sum(bool(pod.node) for pod in self.pods.values() if pod.annotations[GROUP_NAME] == group)
            assert running >= self.least[group]


@law
@given(gang_lists, machine_lists)
def test_gangs_start_whole_and_nothing_is_given_twice_though_others_are_evicted(
    gangs: list[Gang], machines: list[int]
) -> None:
    life = Life(gangs, machines)
    for _ in range(4):
        life.step()


@law
@given(gang_lists, machine_lists)
def test_the_same_objects_lead_to_the_same_decisions_and_a_fork_decides_alike(
    gangs: list[Gang], machines: list[int]
) -> None:
    one, other = Life(gangs, machines), Life(list(gangs), list(machines))
    for _ in range(3):
        fork = one.engine.fork()
        assert fork.schedule(one.now + 1) == one.step() == other.step()
        assert one.engine.dump() == other.engine.dump()
