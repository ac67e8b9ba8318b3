"""The what-if: changes from anywhere, tried in a fork, with victims by name; the cluster itself stays as it is."""

import asyncio
import re
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from gpuconsole.cli.whatif import changes_in
from gpuconsole.insight.whatif.whatif import OTHER_LATENCIES, WhatIf
from gpuconsole.model.clock import HOUR, MINUTE, Span
from gpuconsole.model.commands import Command, Copy, FailNode, Later, SetWeight, Submit
from gpuconsole.model.cooperative import Progress
from gpuconsole.model.events import HistoryEventKind
from gpuconsole.model.workloads import Workload
from gpuconsole.services.analysis import AnalysisService
from gpuconsole.sim.run_times import MEASURED
from gpuconsole.ui import whatif_changes
from gpuconsole.ui.job_templates import BY_ID, JobTemplateRequest
from gpuconsole.ui.screens.answers import AnswerScreen
from gpuconsole.ui.screens.submit import SubmitScreen
from gpuconsole.ui.screens.whatif import WhatIfScreen
from gpuconsole.ui.whatif_changes import try_out
from gpuconsole.ui.widgets.dialogs import ChoiceDialog, Prompt
from tests.support.console_clusters import a_job, busy_org, history, org_cohort, recorded, snapshot_of
from tests.support.console_stage import SIZES, Stage, staged

SERVE_2 = a_job("serve-2", 8, "prod", "production")


def words(stage: Stage) -> list[str]:
    return [change.words for change in stage.screen(WhatIfScreen).changes]


@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_it_names_the_victims_where_it_lands_and_says_that_nothing_is_reserved(size: tuple[int, int]) -> None:
    async with staged(busy_org(), size) as stage:
        try_out(stage.app, whatif_changes.submit([SERVE_2], "prod/serve-2, 8 GPUs"))
        await stage.settle()
        await stage.press("enter")
        assert "✓ prod/serve-2, 8 GPUs: admitted at +1s from a100-80gb on node-3" in stage.text
        assert "feasible, nothing is reserved" in stage.text
        assert "✖ research/rlhf  6 GPUs" in stage.text
        assert "reclaim in cohort by prod/serve-2" in " ".join(stage.text.split())
        assert stage.line("GPUs in use").split()[3:] == ["20/24", "20", "22", "+2"]
        assert stage.line("cq-prod GPUs").split()[2:] == ["8/16", "8", "16", "+8"]
        assert len(stage.app.cluster.snapshot.workloads) == 4


async def test_a_job_that_could_never_fit_says_why() -> None:
    async with staged(busy_org()) as stage:
        try_out(stage.app, whatif_changes.submit([a_job("huge", 64, "prod", "production")], "prod/huge"))
        await stage.settle()
        await stage.press("enter")
        assert "not admitted before the horizon" in stage.text
        assert "the maximum capacity of cq-prod is 16 GPUs" in stage.text


async def test_changes_are_added_from_a_menu_and_undone_one_by_one() -> None:
    async with staged(busy_org()) as stage:
        await stage.press("7", "a")
        stage.screen(ChoiceDialog)
        await stage.press("s")
        stage.screen(Prompt)
        await stage.write("nobody")
        assert "no workload has this name" in stage.text
        await stage.press("ctrl+u")
        await stage.write("serve")
        await stage.press("enter", "a", "k", "down", "enter")
        assert words(stage) == ["stop prod/serve", "fail node node-2"]
        await stage.press("backspace")
        assert words(stage) == ["stop prod/serve"]
        await stage.press("backspace", "backspace")
        assert words(stage) == []
        assert "No changes yet" in stage.text


async def test_a_quota_is_changed_in_the_fork_only() -> None:
    async with staged(busy_org()) as stage:
        await stage.press("7", "a", "q", "down", "enter")
        await stage.press("enter")
        stage.screen(Prompt)
        await stage.press("ctrl+u")
        await stage.write("4")
        await stage.press("enter")
        assert words(stage) == ["cq-prod a100-80gb gpu 16 → 4"]
        await stage.press("enter")
        quota = stage.app.cluster.snapshot.cluster_queues["cq-prod"].quotas()["a100-80gb", "nvidia.com/gpu"]
        assert quota.nominal == 16


async def test_a_manifest_file_is_submitted_into_the_fork(tmp_path: Path) -> None:
    good, bad = tmp_path / "job.yaml", tmp_path / "bad.yaml"
    request = JobTemplateRequest(namespace="prod", name="file-1", queue="lq-prod", priority_class="production", gpus=8)
    good.write_text(BY_ID["training"].text(request), encoding="utf-8")
    bad.write_text("kind: [", encoding="utf-8")
    async with staged(busy_org()) as stage:
        await stage.press("7", "a")
        await stage.press("y")
        await stage.write(str(bad))
        await stage.press("enter")
        assert words(stage) == []
        await stage.press("a", "y")
        await stage.write(str(good))
        await stage.press("enter")
        assert words(stage) == ["submit job.yaml, 1 object"]
        await stage.press("enter")
        assert "✓ prod/file-1, 8 GPUs: admitted" in stage.text


async def test_a_workload_is_taken_along_by_its_key() -> None:
    async with staged(busy_org()) as stage:
        await stage.press("3", "slash")
        await stage.write("serve")
        await stage.press("enter", "i", "c")
        assert words(stage) == ["submit prod/serve-copy2, 8 GPUs, priority 10000"]
        await stage.press("enter")
        assert "✖ research/rlhf  6 GPUs" in stage.text


async def test_a_queue_is_held_in_the_fork_or_given_another_quota() -> None:
    async with staged(busy_org()) as stage:
        await stage.press("2", "down", "i", "s")
        await stage.press("2", "i", "e")
        await stage.press("enter")
        stage.screen(Prompt)
        await stage.press("ctrl+u")
        await stage.write("20")
        await stage.press("enter")
        assert words(stage) == ["hold queue cq-prod", "cq-prod a100-80gb gpu 16 → 20"]


async def test_the_form_brings_its_job_along() -> None:
    async with staged(busy_org()) as stage:
        await stage.press("8")
        stage.screen(SubmitScreen)
        await stage.wait(0.3)
        await stage.press("ctrl+o")
        assert words(stage) == ["submit prod/notebook-1, 1 GPU"]


async def test_the_horizon_can_be_set() -> None:
    async with staged(busy_org()) as stage:
        await stage.press("7", "h", "ctrl+u")
        await stage.write("soon")
        assert "is not a duration" in stage.text
        await stage.press("ctrl+u")
        await stage.write("6h")
        await stage.press("enter")
        assert "horizon 6h" in stage.text


async def test_a_recording_says_that_it_has_no_other_future() -> None:
    async with staged(recorded(org_cohort(), history())) as stage:
        try_out(stage.app, whatif_changes.lose("node-1"))
        await stage.settle()
        await stage.press("enter")
        assert "✖ Failed: A recording has no what-ifs" in stage.text


class SlowAnswers(AnalysisService):
    """Answers a what-if only when it is told to."""

    released = threading.Event()

    def looks(
        self, commands: Sequence[Command], horizon: Span, against: Sequence[Command] = (), places: Sequence[str] = ()
    ) -> Iterator[Progress[WhatIf]]:
        self.released.wait(10)
        return super().looks(commands, horizon, against, places)


async def test_a_run_shows_that_it_computes_and_can_be_given_up() -> None:
    console = busy_org()
    console.answers.__class__ = SlowAnswers
    async with staged(console) as stage:
        try_out(stage.app, whatif_changes.submit([SERVE_2], "prod/serve-2"))
        await stage.settle()
        stage.screen(WhatIfScreen).start()
        await stage.pause()
        assert "running two simulations to +1h" in stage.text
        stage.screen(WhatIfScreen).escape()
        await stage.pause()
        assert "Cancelled." in stage.text
        SlowAnswers.released.set()
        await stage.settle()
        assert stage.screen(WhatIfScreen).result is None
        await stage.press("enter")
        assert "✖ research/rlhf" in stage.text


def test_a_copy_gets_a_free_name_and_names_the_job_that_it_is_of() -> None:
    snapshot = snapshot_of(org_cohort())
    assert whatif_changes.copy(snapshot, snapshot.workloads["prod/serve"]).commands == (
        Copy("Job/prod/serve", "serve-copy2"),
    )
    bare = Workload(name="train")
    assert whatif_changes.copy(snapshot_of([bare]), bare).commands == (Copy("default/train", "train-copy2"),)


async def test_a_copy_of_a_running_workload_is_written_and_comes_to_the_same(tmp_path: Path) -> None:
    """What W writes is what `gpuconsole whatif -f` reads: the answer on the same cluster is the same."""
    console = busy_org()
    path = tmp_path / "copy.yaml"
    async with staged(console) as stage:
        await stage.press("3", "slash")
        await stage.write("serve")
        await stage.press("enter", "i", "c", "enter")
        shown = stage.screen(WhatIfScreen).result
        await stage.press("W", "ctrl+u")
        await stage.write(str(path))
        await stage.press("enter")
    read = changes_in(path, console.snapshot.time)
    assert read.commands == (Copy("Job/prod/serve", "serve-copy2"),)
    *_, last = console.answers.looks(read.commands, read.horizon or 0)
    assert last.answer == shown


async def test_nothing_of_a_what_if_reaches_the_cluster() -> None:
    console = busy_org()
    before = console.snapshot
    async with staged(console) as stage:
        try_out(stage.app, whatif_changes.submit([SERVE_2], "prod/serve-2"))
        await stage.settle()
        await stage.press("enter")
        await stage.tick(times=3)
        assert not [row for row in console.snapshot.recent if row.what is HistoryEventKind.PREEMPTED]
        assert set(console.snapshot.jobs) == set(before.jobs)


async def test_changes_are_written_as_a_list_that_reads_back(tmp_path: Path) -> None:
    file = tmp_path / "change.yaml"
    async with staged(busy_org()) as stage:
        await stage.press("8")
        await stage.wait(0.3)
        await stage.press("ctrl+o")
        asked = stage.screen(WhatIfScreen).changes[0].commands[0]
        try_out(stage.app, whatif_changes.lose("node-1"))
        await stage.settle()
        await stage.press("W", "ctrl+u")
        await stage.write(str(file))
        await stage.press("enter")
        changes = changes_in(file, now=0)
        assert (changes.horizon, changes.commands[1]) == (HOUR, FailNode("node-1"))
        assert isinstance(asked, Submit)
        assert isinstance(changes.commands[0], Submit)
        assert changes.commands[0].objects == asked.objects


async def test_a_file_that_is_there_is_not_written_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    mine = tmp_path / "change.yaml"
    mine.write_text("mine")
    async with staged(busy_org()) as stage:
        await _added(stage, whatif_changes.lose("node-1"))
        await stage.press("W")
        assert "change-2.yaml" in stage.text
        await stage.press("ctrl+u")
        await stage.write("change.yaml")
        assert "change.yaml already exists; choose another name" in stage.text
        await stage.press("enter", "ctrl+u")
        await stage.write("other.yaml")
        await stage.press("enter")
    assert mine.read_text() == "mine"
    assert changes_in(tmp_path / "other.yaml", 0).commands == (FailNode("node-1"),)


async def test_what_has_no_manifest_is_not_written(tmp_path: Path) -> None:
    file = tmp_path / "change.yaml"
    async with staged(busy_org()) as stage:
        await _added(stage, whatif_changes.submit([SERVE_2], "prod/serve-2"))
        await stage.press("W", "ctrl+u")
        await stage.write(str(file))
        await stage.press("enter")
        assert not file.exists()


async def test_a_list_of_changes_is_read_into_the_fork(tmp_path: Path) -> None:
    file = tmp_path / "change.yaml"
    file.write_text("steps: [{commands: [{type: fail-node, node: node-1}]}, {advanceSeconds: 60, delete: [prod/x]}]")
    async with staged(busy_org()) as stage:
        await stage.press("7", "a")
        await stage.press("y")
        await stage.write(str(file))
        await stage.press("enter")
        await stage.wait(0.3)
        assert words(stage) == ["fail-node node-1", "after 1m: delete prod/x"]


async def test_any_command_of_a_step_can_be_asked_for() -> None:
    async with staged(busy_org()) as stage:
        await stage.press("7", "a")
        await stage.press("o")
        await stage.press("enter")
        await stage.press("ctrl+u")
        await stage.write("{type: set-weight, queue: cq-prod}")
        assert "⚠ weight is missing; write it" in stage.text
        await stage.press("ctrl+u")
        await stage.write("{type: set-weight, queue: cq-prod, weight: 3}")
        await stage.press("enter")
        assert words(stage) == ["set-weight cq-prod 3.0"]


async def test_time_passes_before_the_changes_that_follow() -> None:
    async with staged(busy_org()) as stage:
        await stage.press("7", "@", "ctrl+u")
        await stage.write("10m")
        await stage.press("enter")
        try_out(stage.app, whatif_changes.lose("node-1"))
        await stage.settle()
        assert words(stage) == ["after 10m: fail node node-1"]
        assert stage.screen(WhatIfScreen).changes[0].commands == (Later(10 * MINUTE, FailNode("node-1")),)


async def test_two_lists_are_held_against_each_other() -> None:
    async with staged(busy_org()) as stage:
        screen = await _added(stage, whatif_changes.submit([SERVE_2], "prod/serve-2"))
        await stage.press("b")
        assert (words(stage), [change.words for change in screen.against or ()]) == ([], ["submit prod/serve-2"])
        try_out(stage.app, whatif_changes.lose("node-1"))
        await stage.settle()
        await stage.press("enter")
        assert stage.line("GPUs in use").split()[3] == "20/24"
        assert "A, +" in stage.text
        await stage.press("backspace", "b")
        assert screen.against is None


def rlhf(stage: Stage) -> Workload:
    """The workload of research's job."""
    workloads: Iterator[Workload] = iter(stage.app.cluster.snapshot.workloads.all())
    return next(workload for workload in workloads if workload.owner == "Job/research/rlhf")


async def test_two_lists_change_places_and_none_of_them_is_lost() -> None:
    async with staged(busy_org(), (160, 50)) as stage:
        screen = await _added(stage, whatif_changes.submit([SERVE_2], "prod/serve-2"))
        await stage.press("b")
        assert "New changes form B, which is compared with A." in stage.text
        await _added(stage, whatif_changes.lose("node-1"))
        await stage.press("b")
        assert (words(stage), [change.words for change in screen.against or ()]) == (
            ["submit prod/serve-2"],
            ["fail node node-1"],
        )
        await stage.press("backspace", "b")
        assert (words(stage), screen.against) == (["fail node node-1"], None)


async def test_who_is_evicted_in_one_of_two_lists_is_told_by_their_names() -> None:
    async with staged(busy_org(), (160, 50)) as stage:
        await _added(stage, whatif_changes.submit([SERVE_2], "prod/serve-2"))
        await stage.press("enter")
        evicted = stage.line("Direct victims:").strip()
        await stage.press("b")
        await _added(stage, whatif_changes.cordon("node-0"))
        await stage.press("enter")
        assert stage.line("Avoided evictions (only in A):").strip() == evicted.replace(
            "Direct victims", "Avoided evictions (only in A)"
        )


async def test_a_refusal_names_its_change() -> None:
    async with staged(busy_org()) as stage:
        change = whatif_changes.WhatIfChange("weigh cq-prod with -1", (SetWeight("cq-prod", -1),))
        await _added(stage, whatif_changes.submit([SERVE_2], "prod/serve-2"), change)
        await stage.press("enter")
        assert stage.line("refused").strip(" │").endswith("refused: weigh cq-prod with -1: weight -1 is not 0 or more")


class FirstLook(AnalysisService):
    """Gives the first look, and no more until it is told to."""

    released = threading.Event()

    def looks(
        self, commands: Sequence[Command], horizon: Span, against: Sequence[Command] = (), places: Sequence[str] = ()
    ) -> Iterator[Progress[WhatIf]]:
        for look in super().looks(commands, horizon, against, places):
            yield look
            self.released.wait(10)


class UpToOtherRuns(AnalysisService):
    """Gives the looks until both futures are at the horizon, and no more until it is told to."""

    released = threading.Event()

    def looks(
        self, commands: Sequence[Command], horizon: Span, against: Sequence[Command] = (), places: Sequence[str] = ()
    ) -> Iterator[Progress[WhatIf]]:
        for look in super().looks(commands, horizon, against, places):
            yield look
            if look.doing == OTHER_LATENCIES:
                self.released.wait(10)


async def test_what_the_next_cycle_brings_is_there_before_the_rest() -> None:
    console = busy_org()
    console.answers.__class__ = FirstLook
    async with staged(console) as stage:
        huge = whatif_changes.submit([a_job("huge", 64, "prod", "production")], "prod/huge")
        screen = await _added(stage, whatif_changes.submit([SERVE_2], "prod/serve-2"), huge)
        screen.start()
        for _ in range(100):
            await stage.pause()
            if "Outcome of the next scheduling cycle" in stage.text:
                break
        assert "Outcome of the next scheduling cycle" in stage.text
        assert "✖ research/rlhf" in stage.text
        assert "◐ prod/huge, 64 GPUs: not admitted in the next cycle" in stage.text
        assert "the horizon" not in stage.text
        assert "Esc cancels" in stage.text
        FirstLook.released.set()
        await stage.settle()
        assert "✓ prod/serve-2, 8 GPUs: admitted at +1s" in stage.text
        assert "◐ prod/huge, 64 GPUs: not admitted before the horizon" in stage.text
        assert "Esc cancels" not in stage.text


async def test_what_depends_on_latencies_is_a_range_that_comes_after_the_answer() -> None:
    console = busy_org(MEASURED)
    console.answers.__class__ = UpToOtherRuns
    async with staged(console, (200, 50)) as stage:
        screen = await _added(stage, whatif_changes.submit([SERVE_2], "prod/serve-2"))
        screen.start()
        for _ in range(600):
            await asyncio.sleep(0.05)  # the answer comes from another process, which takes its time on a loaded machine
            await stage.pause()
            if "additional runs for ranges: 0 of 4" in stage.text:
                break
        assert "additional runs for ranges: 0 of 4" in stage.text
        assert "✓ prod/serve-2, 8 GPUs: admitted at +1s from a100-80gb on node-3" in stage.text
        UpToOtherRuns.released.set()
        await stage.settle()
        words = " ".join(stage.text.replace("│", " ").split())
        assert re.search(r"✓ prod/serve-2, 8 GPUs: admitted at \+1\.\ds \([\d.]+s to [\d.]+s in 5 runs\) from", words)
        assert "assumed: controller latencies as measured with Kueue 0.19.2: from the eviction of a Job" in words
        assert "feasible, nothing is reserved; 5 runs with different controller latencies" in words
        assert re.search(r"quota released at \+1(\.\d)?s, pods gone at \+3\ds", words)
        assert "additional runs for ranges" not in words


async def test_who_gives_up_the_other_runs_keeps_the_answer() -> None:
    console = busy_org(MEASURED)
    console.answers.__class__ = UpToOtherRuns
    UpToOtherRuns.released.clear()
    async with staged(console) as stage:
        screen = await _added(stage, whatif_changes.submit([SERVE_2], "prod/serve-2"))
        screen.start()
        for _ in range(200):
            await stage.pause()
            if "additional runs for ranges" in stage.text:
                break
        screen.escape()
        UpToOtherRuns.released.set()
        await stage.settle()
        assert "✓ prod/serve-2, 8 GPUs: admitted at +1s from a100-80gb on node-3" in stage.text
        assert not any(words in stage.text for words in ("Cancelled", "additional runs for ranges", "5 runs"))


async def _added(stage: Stage, *changes: whatif_changes.WhatIfChange) -> WhatIfScreen:
    for change in changes:
        try_out(stage.app, change)
        await stage.settle()
    return stage.screen(WhatIfScreen)


async def test_a_plan_is_made_for_the_jobs_of_the_what_if_and_needs_one() -> None:
    async with staged(busy_org(), (160, 50)) as stage:
        await stage.press("7", "p")
        assert "no job among the changes" in " ".join(notice.message for notice in stage.app._notifications)
        await _added(stage, whatif_changes.submit([SERVE_2], "prod/serve-2"))
        await stage.press("p", "enter")
        screen = stage.screen(AnswerScreen)
        assert (screen.crumb(), "1 workload to start within 10m (p95 wait)" in stage.text) == ("plan", True)
        assert "kinds done" not in stage.text
        await stage.press("escape")
        assert isinstance(stage.app.screen, WhatIfScreen)


async def test_a_plan_is_made_for_a_copy_too_and_for_what_comes_later() -> None:
    async with staged(busy_org(), (160, 50)) as stage:
        for change in (
            whatif_changes.copy(stage.app.cluster.snapshot, rlhf(stage)),
            whatif_changes.later(whatif_changes.submit([SERVE_2], "serve"), MINUTE),
        ):
            await _added(stage, change)
            await stage.press("p")
            assert "Target wait (p95)" in stage.text
            await stage.press("escape", "backspace")
