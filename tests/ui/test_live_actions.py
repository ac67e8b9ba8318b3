"""Actions at a live cluster: offered where allowed, tried first, shown as a difference, never by Enter alone."""

import stat
import sys
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpuconsole.backends.guard import AuditOutcome
from gpuconsole.errors import ClusterError
from gpuconsole.model.commands import Delete, Drain, Edit, SetActive, SetPriority, SetStopPolicy, Submit
from gpuconsole.model.job import Job
from gpuconsole.model.pod_template import PodSet
from gpuconsole.services.console import Console
from gpuconsole.ui.actions import BY_ID, Scope
from gpuconsole.ui.app import ConsoleApp
from gpuconsole.ui.screens.base import ConsoleScreen
from gpuconsole.ui.screens.objects import DiffScreen, NotYaml, as_text, difference, read
from gpuconsole.ui.screens.pods import ForwardsScreen, LogScreen, wrong_ports
from gpuconsole.ui.widgets.dialogs import ChoiceDialog, Confirm, Prompt
from tests.support.console_clusters import busy_org, waiting
from tests.support.console_stage import Stage, staged
from tests.support.live_console import FakeCluster, LendingApp, live

MANIFEST = """
apiVersion: batch/v1
kind: Job
metadata: {name: x, namespace: team}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}
"""


@asynccontextmanager
async def opened(console: Console, **more: object) -> AsyncIterator[Stage]:
    app = LendingApp(console, repaint=0, **more)  # type: ignore[arg-type]
    async with app.run_test(size=(120, 36)) as pilot:
        stage = Stage(app, pilot)
        await stage.settle()
        yield stage


def at(stage: Stage, view: str, key: str) -> None:
    stage.app.go(view, at=key)


def said(app: ConsoleApp) -> str:
    return "\n".join(notification.message for notification in app._notifications)


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An $EDITOR that replaces one word by another, as the file beside it says, and notes how the file is protected."""
    script, orders = tmp_path / "editor.py", tmp_path / "orders"
    script.write_text(
        "import sys, pathlib, os\n"
        f"old, new = pathlib.Path({str(orders)!r}).read_text().split('|')\n"
        "file = pathlib.Path(sys.argv[1])\n"
        f"pathlib.Path({str(tmp_path / 'seen')!r}).write_text(f'{{file}} {{os.stat(file).st_mode}}')\n"
        "file.write_text(file.read_text().replace(old, new))\n"
    )
    monkeypatch.setenv("KUBE_EDITOR", f"{sys.executable} {script}")
    return orders


async def test_what_the_user_may_not_do_is_refused_with_the_right_that_is_missing(cluster: FakeCluster) -> None:
    cluster.at.forbidden = lambda asked: "you cannot patch it" if isinstance(asked, SetStopPolicy) else ""
    async with opened(live(cluster)) as stage:
        at(stage, "queues", "cq-research")
        await stage.settle()
        await stage.press("s")
        assert "hold or resume: you cannot patch it" in said(stage.app)
    assert cluster.sent == []


@pytest.mark.parametrize("why", [{"read_only": True}, {"protected": "Context prod is protected"}], ids=str)
async def test_where_nothing_may_be_changed_no_action_sends_anything(
    cluster: FakeCluster, why: dict[str, object]
) -> None:
    async with opened(live(cluster, **why)) as stage:  # type: ignore[arg-type]
        at(stage, "workloads", "research/rlhf")
        await stage.settle()
        screen = stage.screen(ConsoleScreen)
        for action in screen.actions.offered():
            assert not action.changes or screen.refusal(action), action.id
        await stage.press("e", "ctrl+x")
        assert isinstance(stage.app.screen, ConsoleScreen), "no dialog came"
    assert cluster.sent == []


async def test_only_the_typed_name_deletes(cluster: FakeCluster) -> None:
    async with opened(live(cluster)) as stage:
        at(stage, "workloads", "research/rlhf")
        await stage.settle()
        await stage.press("ctrl+x", "enter", "enter")
        await stage.write("delete")
        await stage.press("enter")
        assert cluster.sent == []
        assert isinstance(stage.app.screen, Confirm)
        await stage.press("escape", "ctrl+x")
        await stage.write("research/rlhf")
        await stage.press("enter", "enter")
    assert cluster.sent == [Delete("workloads", "research/rlhf")]


async def test_the_name_in_the_title_is_the_one_to_type_and_enter_after_it_deletes(cluster: FakeCluster) -> None:
    """Kueue named the Workload after its job: the dialog speaks of the job, whose name stands in every table."""
    made = replace(waiting("job-tune-0a1b2", 2), owner="Job/research/tune")
    for name in ("tune", "job-tune-0a1b2", "research/job-tune-0a1b2", "delete", ""):
        cluster.put(made)
        async with opened(live(cluster)) as stage:
            at(stage, "workloads", "research/job-tune-0a1b2")
            await stage.settle()
            await stage.press("ctrl+x")
            assert "Delete research/tune?" in stage.text
            assert "Type research/tune and press Enter to confirm" in stage.text
            assert "job-tune-0a1b2" not in stage.text.split("Delete research/tune?")[1].split("Cancel")[0]
            await stage.write(name)
            await stage.press("enter", "enter")
            assert (cluster.sent, isinstance(stage.app.screen, Confirm)) == ([], True), name
            await stage.press(*["backspace"] * len(name))
            await stage.write("research/tune")
            if not name:
                await stage.press("enter")
    assert cluster.sent == [Delete("workloads", "research/job-tune-0a1b2")]


async def test_a_queue_is_deleted_by_the_name_in_the_title(cluster: FakeCluster) -> None:
    async with opened(live(cluster)) as stage:
        await stage.press("2", "j", "ctrl+x")
        assert "Delete ClusterQueue cq-prod?" in stage.text
        await stage.write("cq-prod")
        await stage.press("enter")
    assert cluster.sent == [Delete("cluster_queues", "cq-prod")]


async def test_an_edit_shows_its_difference_before_it_is_applied(
    cluster: FakeCluster, editor: Path, tmp_path: Path
) -> None:
    editor.write_text("stopPolicy: None|stopPolicy: Hold")
    async with opened(live(cluster)) as stage:
        at(stage, "queues", "cq-research")
        await stage.settle()
        await stage.press("m", "e")
        stage.screen(DiffScreen)
        assert "-  stopPolicy: None" in stage.text
        assert "+  stopPolicy: Hold" in stage.text
        assert cluster.sent == []
        await stage.press("ctrl+s", "enter")
        assert cluster.sent == [], "Enter alone is Cancel"
        await stage.press("ctrl+s", "tab", "enter")
    assert cluster.sent == [Edit("cluster_queues", "cq-research", "77", '{"spec":{"stopPolicy":"Hold"}}')]
    file, mode = (tmp_path / "seen").read_text().split()
    assert stat.S_IMODE(int(mode)) == 0o600
    assert not Path(file).exists()


@pytest.mark.parametrize(
    ("order", "words"),
    [
        ("nothing|else", "No changes"),
        ("name: cq-research|name: other", "metadata.name cannot be changed"),
        ("kind: |kind: [", "Invalid YAML"),
    ],
)
async def test_an_edit_that_makes_no_sense_is_not_sent(
    cluster: FakeCluster, editor: Path, order: str, words: str
) -> None:
    editor.write_text(order)
    async with opened(live(cluster)) as stage:
        at(stage, "queues", "cq-research")
        await stage.settle()
        await stage.press("m", "e")
        assert words in said(stage.app) + stage.text
    assert cluster.sent == []


async def test_a_conflict_is_shown_and_noted(cluster: FakeCluster, editor: Path) -> None:
    editor.write_text("stopPolicy: None|stopPolicy: Hold")
    cluster.refusing = "somebody else changed it"
    console = live(cluster)
    async with opened(console) as stage:
        at(stage, "queues", "cq-research")
        await stage.settle()
        await stage.press("m", "e", "ctrl+s", "tab", "enter")
        await stage.tick()
        assert "Refused: somebody else changed it" in said(stage.app)
    assert [entry.outcome for entry in console.entries] == [AuditOutcome.SENT, AuditOutcome.REFUSED]


def test_a_difference_is_a_merge_patch() -> None:
    before = {"a": 1, "b": {"c": 2, "d": 3}, "l": [1, 2], "same": {"x": 1}}
    after = {"a": 1, "b": {"c": 4}, "l": [1], "same": {"x": 1}, "new": {"y": 5}}
    assert difference(before, after) == {"b": {"c": 4, "d": None}, "l": [1], "new": {"y": 5}}
    assert difference(before, before) == {}


def test_an_edited_text_has_to_be_the_same_manifest() -> None:
    before = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}
    for text in ("", "[]", "a: 1", "{apiVersion: v2, kind: Pod, metadata: {name: a}}", "\x00"):
        with pytest.raises(NotYaml):
            read(text, before)


async def test_logs_of_a_gang_are_followed_and_end_with_the_screen(cluster: FakeCluster) -> None:
    async with opened(live(cluster)) as stage:
        at(stage, "workloads", "research/rlhf")
        await stage.settle()
        await stage.press("l")
        await stage.wait(0.4)
        stage.screen(LogScreen)
        assert "hello from research/rlhf-0" in stage.text
        await stage.press("p")
        await stage.wait(0.4)
        now, before = cluster.at.opened
        assert (now.previous, now.closed, before.previous) == (False, True, True)
        await stage.press("escape")
        await stage.settle()
        assert before.closed


async def test_events_of_kubernetes_stand_below_ours(cluster: FakeCluster) -> None:
    async with opened(live(cluster)) as stage:
        at(stage, "workloads", "research/rlhf")
        await stage.settle()
        await stage.press("E")
        assert "FailedScheduling" in stage.line("0/3 nodes")


async def test_a_drain_asks_how_and_then_once_more(cluster: FakeCluster) -> None:
    async with opened(live(cluster)) as stage:
        at(stage, "nodes", "node-1")
        await stage.settle()
        await stage.press("r")
        assert isinstance(stage.app.screen, ChoiceDialog)
        await stage.press("s", "enter")
        assert cluster.sent == [], "Enter alone is Cancel"
        await stage.press("r", "s", "tab", "enter")
    assert cluster.sent == [Drain("node-1", sparing=True)]


async def test_a_priority_class_is_named(cluster: FakeCluster) -> None:
    async with opened(live(cluster)) as stage:
        at(stage, "workloads", "research/rlhf-2")
        await stage.settle()
        await stage.press("m", "P")
        assert isinstance(stage.app.screen, Prompt)
        await stage.press("ctrl+u")
        await stage.write("production")
        await stage.press("enter")
    assert cluster.sent == [SetPriority("research/rlhf-2", 10_000, "production")]


async def test_a_file_is_tried_on_the_server_before_anybody_is_asked(cluster: FakeCluster, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(MANIFEST)
    async with opened(live(cluster)) as stage:
        await stage.press(":")
        await stage.write(f"apply {file}")
        await stage.press("enter")
        assert "Job team/x would be created" in stage.text
        await stage.press("enter")
        assert cluster.sent == []
        cluster.at.answers = ClusterError("admission webhook denied it")
        await stage.press(":")
        await stage.write(f"apply {file}")
        await stage.press("enter")
        assert "admission webhook denied it" in said(stage.app)
        cluster.at.answers = ("Job team/x would be created",)
        await stage.press(":")
        await stage.write(f"apply {file}")
        await stage.press("enter", "tab", "enter")
    (sent,) = cluster.sent
    assert isinstance(sent, Submit)
    assert '"name":"x"' in sent.documents[0]


@pytest.mark.parametrize(("text", "wrong"), [("80", ""), ("8080:80", ""), ("0", "x"), ("x", "x"), ("1:70000", "x")])
def test_ports_are_one_number_or_two(text: str, wrong: str) -> None:
    assert bool(wrong_ports(text)) == bool(wrong)


async def test_a_shell_is_noted_and_a_port_forward_ends_with_the_console(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(
        "#!/bin/sh\n"
        f'echo "$@" >> {tmp_path / "called"}\n'
        'case "$*" in *port-forward*) echo "Forwarding from 127.0.0.1:4567 -> 80"; echo $$ > '
        f"{tmp_path / 'pid'}; exec sleep 600;; esac\n"
    )
    kubectl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    console = live(cluster)
    async with opened(console) as stage:
        at(stage, "workloads", "research/rlhf")
        await stage.settle()
        await stage.press("m", "S")
        await stage.press("m", "f")
        await stage.write("80")
        await stage.press("enter")
        stage.screen(ForwardsScreen)
        for _ in range(40):
            await stage.wait(0.1)
            if "4567" in stage.text:
                break
        assert "127.0.0.1:4567" in stage.line("research/rlhf-0")
    console.stop()
    process = Path("/proc") / (tmp_path / "pid").read_text().strip()
    assert not process.exists() or "sleep" not in (process / "cmdline").read_text()
    calls = (tmp_path / "called").read_text().splitlines()
    assert calls[0].startswith("--context here exec -it -n research rlhf-0 -- sh -c")
    assert calls[1] == "--context here port-forward --address 127.0.0.1 -n research pod/rlhf-0 :80"
    outcomes = [(entry.command, entry.outcome) for entry in console.entries]
    assert ("shell in research/rlhf-0", AuditOutcome.SENT) in outcomes
    assert ("shell in research/rlhf-0", AuditOutcome.DONE) in outcomes


class TwoContexts:
    """A kubeconfig with two clusters."""

    namespaces: Collection[str] = ()

    def __init__(self) -> None:
        self.there = FakeCluster("there")

    def names(self) -> Sequence[str]:
        return ("here", "there")

    def open(self, context: str, namespaces: Collection[str], leaving: Console) -> Console:
        if context != "there":
            raise ClusterError(f"there is no context {context}")
        return live(self.there)


async def test_another_context_is_opened_without_leaving(cluster: FakeCluster) -> None:
    contexts = TwoContexts()
    async with opened(live(cluster), contexts=contexts) as stage:
        await stage.press("3", "enter", ":")
        await stage.write("ctx nowhere")
        await stage.press("enter")
        assert "there is no context nowhere" in said(stage.app)
        assert not cluster.closed.is_set()
        await stage.press(":")
        await stage.write("ctx there")
        await stage.press("enter")
        await stage.settle()
        assert stage.app.cluster.status.source == "there"
        assert cluster.closed.wait(5), "the old cluster is let go of"
        assert len(stage.app.screen_stack) == 1
        assert "there" in stage.lines[0]
        stage.app.cluster.stop()


async def test_a_simulated_pod_says_that_it_prints_nothing() -> None:
    async with staged(busy_org()) as stage:
        stage.app.go("workloads")
        await stage.settle()
        await stage.press("l")
        assert "logs: simulated pods have no logs" in said(stage.app)
        screen = stage.screen(ConsoleScreen)
        refused = {id: screen.refusal(BY_ID[id]) for id in ("object.shell", "object.forward", "object.edit")}
        assert all(refused.values()), refused


def test_screens_that_open_from_others_have_actions_of_their_own() -> None:
    scopes = {action.scope for action in BY_ID.values()}
    assert {Scope.EDIT, Scope.LOGS, Scope.FORWARDS} <= scopes


async def test_a_job_that_no_queue_manages_is_suspended_and_resumed(cluster: FakeCluster) -> None:
    free = Job(kind="Job", namespace="research", name="free", pod_sets=(PodSet(),))
    cluster.put(free)
    async with opened(live(cluster)) as stage:
        at(stage, "workloads", free.key)
        await stage.settle()
        await stage.press("s")
        assert "Suspend Job/research/free?" in stage.text
        await stage.press("enter")
        assert cluster.sent == [], "Enter alone is Cancel"
        await stage.press("s", "tab", "enter")
        cluster.put(replace(free, suspended=True))
        await stage.tick()
        await stage.press("s")
    assert cluster.sent == [SetActive(free.key, False), SetActive(free.key, True)]


@pytest.mark.parametrize(
    "text",
    ["metadata: &a {b: *a}", "metadata: {} \na: " + "[" * 3000 + "]" * 3000, "metadata: {}\na: " + "9" * 5000,
     "metadata: {}\n1: 2\n2026-01-01: 3\nnull: 4", 'metadata: {}\na: "\\ud800"', "metadata: {}\n? [a]\n: b",
     "metadata: {}\na: !!timestamp x", "metadata: {}\na: !!bool x", "metadata: {}\na: !!int ''"],
    ids=["an alias of itself", "deep", "digits", "keys", "half a character", "a list as key",
         "no time", "no truth value", "no number"],
)  # fmt: skip
def test_an_edit_that_has_no_form_in_json_is_refused(text: str) -> None:
    with pytest.raises(NotYaml):
        read(text, {"metadata": {}})


def test_texts_that_look_like_numbers_stay_texts_in_an_edit() -> None:
    before = {"metadata": {"annotations": {"a": "1e3", "b": "0o17", "c": "007", "d": "1_0", "e": "yes", "f": "1:30"}}}
    assert read(as_text(before), before) == before


def test_dates_of_an_edit_are_the_texts_that_they_stand_for() -> None:
    after = read("metadata: {annotations: {since: 2026-01-05}}", {"metadata": {}})
    assert after == {"metadata": {"annotations": {"since": "2026-01-05"}}}
