"""The workloads: order, cursor, explanation, and what can be done with them; at both sizes, with hostile names too."""

import pytest
from msgspec.structs import replace

from gpuconsole.insight.pending.pending import PendingExplanation
from gpuconsole.insight.pending.reasons import PendingReason
from gpuconsole.insight.pending.why import rehearsal_on, trying
from gpuconsole.model.clock import MINUTE
from gpuconsole.model.events import Applied
from gpuconsole.model.objects import Object
from gpuconsole.model.resources import GPU
from gpuconsole.model.state import ClusterState
from gpuconsole.model.workloads import Workload, WorkloadPhase
from gpuconsole.scheduling.kueue.config import DEFAULT
from gpuconsole.ui.paint import plain
from gpuconsole.ui.screens.objects import TextScreen
from gpuconsole.ui.screens.workloads import WorkloadDetailScreen, WorkloadsScreen
from gpuconsole.ui.widgets.dialogs import ChoiceDialog, Confirm, Prompt
from gpuconsole.ui.widgets.grid import Grid
from gpuconsole.ui.widgets.textpane import TextPane
from gpuconsole.ui.workload_table import WorkloadRows, make_row
from gpuconsole.ui.workload_text import WorkloadFacts, pod_lines, unblocking_lines
from tests.support.console_clusters import (
    HOSTILE,
    busy_org,
    history,
    org_cohort,
    pod_set,
    recorded,
    running,
    snapshot_of,
    waiting,
)
from tests.support.console_stage import SIZES, Stage, staged


def names(stage: Stage) -> list[str]:
    return [row.workload.name for row in stage.screen(WorkloadsScreen).query_one(Grid).rows]


def under_cursor(stage: Stage) -> str:
    subject = stage.screen(WorkloadsScreen).subject()
    assert subject is not None
    return stage.app.cluster.snapshot.workloads[subject.key].name


def test_pending_workloads_come_first_by_their_place_in_the_queue() -> None:
    objects: list[Object] = [
        *org_cohort(),
        waiting("late", 1, ago=MINUTE),
        waiting("urgent", 1, priority=900, ago=MINUTE),
    ]
    listing = WorkloadRows().update(snapshot_of(objects))
    assert [(row.workload.name, row.phase, listing.positions.get(row.key)) for row in listing.rows] == [
        ("urgent", WorkloadPhase.PENDING, 1),
        ("rlhf-2", WorkloadPhase.PENDING, 2),
        ("late", WorkloadPhase.PENDING, 3),
        ("rlhf", WorkloadPhase.RUNNING, None),
        ("embed", WorkloadPhase.RUNNING, None),
        ("llm-ft", WorkloadPhase.RUNNING, None),
        ("serve", WorkloadPhase.RUNNING, None),
    ]


def test_only_workloads_that_changed_are_summed_up_anew() -> None:
    rows, first = WorkloadRows(), snapshot_of(org_cohort())
    before = {row.key: row for row in rows.update(first).rows}
    state = ClusterState.of(first, ())
    state.apply(Applied(first.time, replace(running("embed", 2), priority=900)))
    after = {row.key: row for row in rows.update(state.freeze()).rows}
    assert {key for key in after if after[key] is not before[key]} == {"research/embed"}


def test_namespaces_narrow_the_listing_and_places_stay_those_of_the_queue() -> None:
    listing = WorkloadRows().update(snapshot_of(org_cohort()), frozenset({"prod"}))
    assert [row.key for row in listing.rows] == ["prod/serve"]


def test_a_row_says_why_in_one_word() -> None:
    assert (make_row(waiting("w", 6)).reason, make_row(running("r", 1)).reason) == ("quota", "")


@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_the_table_shows_phase_reason_place_and_size(size: tuple[int, int]) -> None:
    async with staged(recorded(org_cohort()), size) as stage:
        await stage.press("3")
        pending = stage.line("research/rlhf-2").split()
        assert pending[:7] == ["▌", "research/rlhf-2", "◐", "pending", "quota", "1", "500"]
        assert "▲4" in stage.line("research/rlhf ")
        assert "● running" in stage.line("prod/serve")


async def test_the_cursor_stays_on_its_row_whatever_is_sorted_or_arrives() -> None:
    console = recorded(org_cohort())
    async with staged(console) as stage:
        await stage.press("3", "down", "down")
        assert under_cursor(stage) == "embed"
        await stage.press("N")
        assert names(stage) == ["serve", "embed", "llm-ft", "rlhf", "rlhf-2"]
        assert under_cursor(stage) == "embed"
        await stage.press("P")
        assert names(stage)[0] == "serve"
        assert under_cursor(stage) == "embed"


async def test_marked_workloads_are_stopped_together_after_a_question_with_cancel_in_front() -> None:
    async with staged(busy_org()) as stage:
        await stage.press("3", "N")
        await stage.press("slash")
        await stage.write("research")
        await stage.press("enter", "g", "space", "space", "s")
        stage.screen(Confirm)
        assert "Stop research/embed, research/llm-ft?" in stage.text
        assert "Changes 2 of 2 objects" in stage.text
        assert "▸ research/embed runs on 2 GPUs; ~0.0 GPU-hours of work lost" in stage.text
        await stage.press("enter")
        await stage.tick(times=3)
        stage.screen(WorkloadsScreen)
        assert all(w.active for w in stage.app.cluster.snapshot.workloads.all())
        await stage.press("s", "tab", "enter")
        await stage.tick(times=5)
        stopped = [w.name for w in stage.app.cluster.snapshot.workloads.all() if not w.active]
        assert sorted(stopped) == ["job-embed-5eb0a", "job-llm-ft-4364e"]
        every = len(names(stage))
        await stage.press("backslash", "g", "v", "G", "v", "s")
        assert f"Changes {every - 2} of {every} objects; 2 stay as they are" in stage.text
        assert "⊘ research/embed already inactive" in stage.text
        await stage.press("escape")


async def test_a_stopped_workload_is_resumed_without_a_question() -> None:
    async with staged(busy_org()) as stage:
        await stage.press("3", "slash")
        await stage.write("embed")
        await stage.press("enter", "s", "tab", "enter")
        await stage.tick(times=40)
        assert "⏸ stopped" in stage.line("research/embed")
        await stage.press("s")
        stage.screen(WorkloadsScreen)
        await stage.tick(times=20)
        assert "● running" in stage.line("research/embed")


async def test_the_priority_is_asked_for_and_changed() -> None:
    async with staged(busy_org()) as stage:
        await stage.press("3", "N", "g", "m", "P")
        stage.screen(Prompt)
        await stage.press("ctrl+u")
        await stage.write("777")
        await stage.press("enter")
        await stage.tick(times=2)
        assert {w.priority for w in stage.app.cluster.snapshot.workloads.all() if "serve" in w.name} == {777}


async def test_what_makes_no_sense_is_refused_with_the_reason() -> None:
    async with staged(busy_org()) as stage:
        await stage.press("3", "m")
        stage.screen(ChoiceDialog)
        assert "only pending workloads can move" in stage.line("move to queue")
        assert "resume" in stage.line("not stopped")


@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_the_detail_explains_a_pending_workload_beside_kueues_words(size: tuple[int, int]) -> None:
    async with staged(recorded(org_cohort(), history()), size) as stage:
        await stage.press("3", "enter")
        detail = stage.screen(WorkloadDetailScreen)
        why = detail.query_one("#why", TextPane).text
        assert "rlhf-2 needs 6 GPUs; cohort org-cohort has 4 GPUs of a100-80gb available." in why
        assert "Kueue condition (≤ 12m old): couldn't assign flavors to pod set main" in why
        assert "research/rlhf 6 GPUs ▲4" in why
        assert "TIMELINE" in why
        if size[0] < 110:
            assert "PODS" not in stage.text
            await stage.press("tab")
        assert "PODS 0" in stage.text
        await stage.press("escape")
        assert under_cursor(stage) == "rlhf-2"


async def test_the_detail_shows_what_was_tried_level_by_level_and_what_would_let_it_in() -> None:
    async with staged(recorded(org_cohort(), history())) as stage:
        await stage.press("3", "x")
        why = stage.screen(WorkloadDetailScreen).query_one("#why", TextPane).text
        assert "Cohort org-cohort: quota 24, used 20, unused 4 → available 4" in why
        assert "✓ research/embed ends (2 GPUs)" in why
        assert "changes tested" in why
        await stage.press("x")
        assert "changes tested" in stage.screen(WorkloadDetailScreen).query_one("#why", TextPane).text


def test_a_search_that_is_under_way_says_how_far_it_is_and_what_was_found_so_far() -> None:
    snapshot = snapshot_of(org_cohort())
    pieces = list(trying(snapshot, rehearsal_on(snapshot, DEFAULT), "research/rlhf-2"))
    told = [[plain(row) for row in unblocking_lines(piece, snapshot, snapshot.time)] for piece in pieces]
    first_end = next(lines for lines in told if lines[2].startswith("  ✓"))
    assert first_end[2] == "  ✓ research/embed ends (2 GPUs)"
    assert first_end[3].startswith("  … testing end of other workloads: 1 of 9 kinds done, ")
    assert told[0][2] == "  … testing stopped objects and namespaces: 0 of 9 kinds done, 1 changes tested"
    assert "no change that was tried" not in "".join(told[0])
    assert told[-1][-1].endswith("changes tested, 0s ago")


async def test_the_detail_names_the_pods_and_where_they_run() -> None:
    async with staged(recorded(org_cohort(), history())) as stage:
        await stage.press("3", "down", "enter")
        pods = stage.screen(WorkloadDetailScreen).query_one("#pods", TextPane).text
        assert "● Running  rlhf-0  node-3  GPU 0,1,2,3,4,5" in pods


def test_the_detail_says_why_there_are_no_pods() -> None:
    fine = PendingExplanation(subject="n/w", code=PendingReason.NOT_WAITING, headline="")

    def said(workload: Workload) -> str:
        facts = WorkloadFacts(workload=workload, explanation=fine, pods=(), history=(), life=(), now=0)
        return plain(pod_lines(facts)[1])

    assert said(Workload(namespace="n", name="w")) == "  none: pods are created on admission"
    assert said(Workload(namespace="n", name="w", cluster="west")) == "  none here: its pods are in cluster west"


async def test_describe_and_yaml_open_and_lead_back() -> None:
    async with staged(recorded(org_cohort(), history())) as stage:
        await stage.press("3", "d")
        assert "Workload research/rlhf-2" in stage.screen(TextScreen).query_one(TextPane).text
        await stage.press("escape", "y")
        assert "kind: Workload" in stage.screen(TextScreen).query_one(TextPane).text
        await stage.press("escape")
        stage.screen(WorkloadsScreen)


async def test_deleting_takes_the_name_and_its_screens_say_that_it_is_gone() -> None:
    async with staged(busy_org()) as stage:
        await stage.press("3", "N", "g", "enter", "ctrl+x", "enter", "enter")
        stage.screen(Confirm)
        await stage.write("prod/serve")
        await stage.press("enter")
        await stage.tick(times=40)
        stage.screen(WorkloadDetailScreen)
        assert "prod/job-serve-fd090 no longer exists" in stage.text
        await stage.press("escape")
        assert "prod/serve" not in stage.text


@pytest.mark.parametrize("name", [name for name in HOSTILE if name])
@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_hostile_names_reach_no_screen_raw(name: str, size: tuple[int, int]) -> None:
    bad = replace(waiting(name, 6), namespace=name, queue=name, labels={name: name}, owner=f"{name}/{name}/{name}")
    console = recorded([*org_cohort(), bad])
    async with staged(console, size) as stage:
        for keys in (
            ("3",),
            ("enter",),
            ("escape", "d"),
            ("escape", "y"),
            ("escape", "E"),
            ("escape", "i"),
            ("escape", "m"),
        ):
            await stage.press(*keys)
            assert all(line.isprintable() for line in stage.lines), keys


async def test_a_thousand_workloads_are_listed_in_the_background() -> None:
    console = recorded([*org_cohort(), *(waiting(f"w-{number:04}", 1) for number in range(1500))])
    async with staged(console) as stage:
        await stage.press("3")
        assert len(names(stage)) == 1505
        await stage.press("end")
        assert under_cursor(stage) == "serve"


async def test_a_menu_on_a_low_terminal_has_room_to_say_why_not() -> None:
    async with staged(busy_org(), size=(80, 24)) as stage:
        stage.app.go("workloads")
        await stage.settle()
        await stage.press("m", "c")
        assert any("│ ⚠ " in line for line in stage.lines)


async def test_the_queue_is_the_cluster_queue_of_who_waits_as_of_who_runs() -> None:
    async with staged(recorded(org_cohort()), (200, 40)) as stage:
        await stage.press("3")
        assert " cq-research " in stage.line("research/rlhf-2")
        assert " cq-research " in stage.line("research/embed")
        assert not any(" lq-research " in line for line in stage.lines)


async def test_a_local_queue_leads_to_the_work_of_its_namespace_in_its_cluster_queue() -> None:
    async with staged(recorded(org_cohort()), (160, 40)) as stage:
        await stage.press("2")
        stage.app.screen.query_one("#queues", Grid).move_to_key(
            next(row.path for row in stage.app.screen.query_one("#queues", Grid).rows if "lq-research" in row.path)
        )
        await stage.press("enter")
        assert stage.app.view == "workloads"
        await stage.tick()
        shown = [row.key for row in stage.app.screen.query_one(Grid).rows]
        assert "research/rlhf-2" in shown
        assert all(key.startswith("research/") for key in shown)


async def test_a_workload_that_is_admitted_in_part_shows_the_pods_that_it_has_quota_for() -> None:
    """Partial admission: 5 of 9 pods have quota."""
    part = running("sweep", 2)
    assert part.admission is not None
    given = replace(part.admission.pod_sets[0], count=5, usage={GPU: 10})
    part = replace(part, pod_sets=(pod_set(2, 9),), admission=replace(part.admission, pod_sets=(given,)))
    whole = replace(waiting("whole", 2), pod_sets=(pod_set(2, 9),))
    async with staged(recorded([*org_cohort(), part, whole]), (160, 50)) as stage:
        await stage.press("3")
        assert [" 2×5 " in stage.line(" research/sweep "), " 2×9 " in stage.line(" research/whole ")] == [True, True]
        for name, size in (("sweep", "10 GPUs in 5 of 9 pods"), ("whole", "18 GPUs in 9 pods")):
            await stage.press("slash")
            await stage.write(name)
            await stage.press("enter", "enter")
            assert f"Job · {size} · priority 500" in stage.lines[2]
            await stage.press("escape", "escape")
