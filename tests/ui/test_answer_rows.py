"""The rows of answers: a cursor as in every table, and the keys of objects for what a row is about."""

import pytest

from gpuconsole.backends.simulated import SimulatedBackend
from gpuconsole.insight.tables import Valued
from gpuconsole.model.snapshot import Visibility, VisibilityGap
from gpuconsole.services.console import Console
from gpuconsole.services.status import ConsoleStatus
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import SimPolicy
from gpuconsole.ui.answers.cluster_reports import AnswerTable, Row, apart, lines_of
from gpuconsole.ui.screens.answers import AnswerScreen, columns
from gpuconsole.ui.screens.base import Subject
from gpuconsole.ui.screens.objects import TextScreen
from gpuconsole.ui.screens.preemptions import PreemptionsScreen
from gpuconsole.ui.screens.queues import QueuesScreen
from gpuconsole.ui.screens.whatif import WhatIfScreen
from gpuconsole.ui.screens.workloads import WorkloadDetailScreen
from gpuconsole.ui.widgets.dialogs import ChoiceDialog
from gpuconsole.ui.widgets.grid import Grid
from tests.support.console_clusters import KUEUE, org_cohort, snapshot_of
from tests.support.console_stage import SIZES, Stage, staged
from tests.ui.test_whatif_links import waiting_org

WHY = "1 of nodes could not be read"

LOANS = AnswerTable(
    ("LENDER", "GPUS", "SINCE"),
    (
        Row(key="a", cells=("cq-a", 4, Valued("1h ago", 3600)), note="workloads on it: x"),
        Row(key="b", cells=("cq-b", 12, Valued("59m ago", 3540))),
    ),
)


def test_as_text_a_table_has_its_notes_below_its_rows() -> None:
    assert lines_of(["16 GPUs borrowed", "", LOANS]) == [
        "16 GPUs borrowed",
        "",
        "LENDER  GPUS    SINCE",
        "cq-a       4   1h ago",
        "  workloads on it: x",
        "cq-b      12  59m ago",
    ]


def test_columns_sort_by_the_numbers_behind_the_words() -> None:
    *_, since = columns(LOANS)
    assert since.sort is not None
    assert [row.key for row in sorted(LOANS.rows, key=since.sort)] == ["b", "a"]
    assert [(column.align, column.down) for column in columns(LOANS)] == [
        ("left", False),
        ("right", True),
        ("right", True),
    ]


def test_lines_are_told_apart_by_where_the_tables_stand() -> None:
    assert apart(["16 GPUs", "", LOANS, "", LOANS, "", "so it is", ""]) == (["16 GPUs"], [LOANS, LOANS], ["so it is"])


async def at(stage: Stage, answer: str, *keys: str) -> AnswerScreen:
    await stage.press("2", answer)
    await stage.settle()
    await stage.press(*keys)
    return stage.screen(AnswerScreen)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize(
    ("answer", "keys", "about"),
    {
        "the borrower of a loan": ("b", (), Subject("cluster_queues", "cq-research")),
        "the lender that may return": ("b", ("tab",), Subject("cluster_queues", "cq-prod")),
        "a flavor of the slots": ("F", (), Subject("flavors", "a100-80gb")),
        "a queue in which gangs start": ("F", ("tab", "j"), Subject("cluster_queues", "cq-research")),
        "a node of the tree of shares": ("f", ("j",), Subject("cluster_queues", "cq-research")),
        "whose turn is next": ("f", ("tab",), Subject("workloads", "research/job-late-a119f")),
        "what runs in danger": ("K", ("j",), Subject("workloads", "prod/job-serve-fd090")),
    }.values(),
    ids=str,
)
async def test_each_row_is_about_something(
    size: tuple[int, int], answer: str, keys: tuple[str, ...], about: Subject
) -> None:
    async with staged(waiting_org(), size) as stage:
        assert (await at(stage, answer, *keys)).subject() == about


async def test_a_row_about_work_opens_its_page_its_preemptions_and_a_what_if() -> None:
    async with staged(waiting_org()) as stage:
        await at(stage, "f", "tab")
        await stage.press("enter")
        assert stage.screen(WorkloadDetailScreen).crumb() == "research/late"
        await stage.press("escape", "x")
        assert stage.screen(WorkloadDetailScreen).crumb() == "research/late"
        await stage.press("escape", "i")
        stage.screen(ChoiceDialog)
        await stage.press("p")
        await stage.press("ctrl+u")
        await stage.write("501")
        await stage.press("enter")
        (change,) = stage.screen(WhatIfScreen).changes
        assert change.words == "research/late priority 0 → 501"
        await stage.press("2", "w")
        assert stage.screen(PreemptionsScreen)


async def test_a_row_about_a_queue_opens_it_explains_it_and_takes_it_into_a_what_if() -> None:
    async with staged(waiting_org()) as stage:
        await at(stage, "b")
        await stage.press("enter")
        row = stage.screen(QueuesScreen).query_one(Grid).current
        assert row is not None
        assert row.node.name == "cq-research"
        await at(stage, "b")
        await stage.press("x")
        assert stage.screen(TextScreen).crumb() == "describe cq-research"
        await stage.press("escape", "i", "s", "enter")
        (change,) = stage.screen(WhatIfScreen).changes
        assert change.words == "hold queue cq-research"


async def test_a_row_about_nothing_says_so_and_enter_changes_nothing() -> None:
    async with staged(waiting_org()) as stage:
        screen = await at(stage, "F", "tab", "tab", "enter")
        assert stage.app.screen is screen
        (said,) = stage.app._notifications
        assert said.message == "open: nothing to open for this row"


async def test_what_has_no_room_in_a_row_stands_below_the_tables() -> None:
    async with staged(waiting_org(), (80, 24)) as stage:
        await at(stage, "K")
        assert "COST $" not in stage.line("WORKLOAD")
        assert "RECLAIMED BY cq-prod (rank 1) · LOST GPU-H 0.1 · COST $ 0.26" in stage.text


async def test_the_table_in_front_has_the_most_lines_where_not_all_have_room() -> None:
    async with staged(waiting_org(), (80, 16)) as stage:
        screen = await at(stage, "F")
        heights = [grid.size.height for grid in screen.query("#tables > Grid").results(Grid) if grid.display]
        assert heights == [3, 3, 3]
        await stage.press("tab", "tab")
        later = [grid.size.height for grid in screen.query("#tables > Grid").results(Grid) if grid.display]
        assert later == [2, 2, 5]


async def test_the_cursor_stays_on_its_row_when_the_answer_is_asked_again() -> None:
    async with staged(waiting_org()) as stage:
        screen = await at(stage, "f", "j")
        await stage.tick(times=2)
        await stage.press("ctrl+r")
        assert screen.subject() == Subject("cluster_queues", "cq-research")


async def test_with_a_node_that_makes_no_sense_slots_and_risk_tell_what_does_not_rest_on_it() -> None:
    snapshot = snapshot_of(org_cohort())
    snapshot.seen = Visibility(gaps=(VisibilityGap(table="nodes", resource="nodes", why=WHY, partly=True),))
    simulation = Simulation.from_snapshot(snapshot, policy=SimPolicy(), seed=7)
    console = Console(SimulatedBackend(simulation), about=ConsoleStatus(source="test", engines=KUEUE))
    console.tick(0.0)
    async with staged(console) as stage:
        await at(stage, "F")
        assert stage.line("cluster").split()[:8] == ["cluster", "≥", "3", "≥", "24", "≥", "4", "≥"]
        assert stage.line("unknown: ").strip() == f"unknown: {WHY}"
        await stage.press("escape", "K")
        assert stage.line("preemption risk unknown").strip() == "4 running workloads; preemption risk unknown"
        assert stage.line("research/rlhf").split()[5:9] == ["500", "unknown", "unknown", "unknown"]
