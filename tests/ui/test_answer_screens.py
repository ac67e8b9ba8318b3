"""Answers about the whole cluster as screens: they open by key, say of when they are, and are asked anew on request."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuconsole.backends.simulated import SimulatedBackend
from gpuconsole.insight.forecast.agreement import (
    AgreementCounts,
    DecisionKind,
    DisagreementCause,
    ShadowDisagreement,
    ShadowReport,
    StateOrigin,
)
from gpuconsole.services.console import Console
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import SimPolicy
from gpuconsole.ui.answers.cluster_reports import AnswerTable, Row
from gpuconsole.ui.answers.shadow import shadow_parts
from gpuconsole.ui.screens.answers import SCREENS, AnswerScreen, report_screen, share_height
from gpuconsole.ui.screens.base import ConsoleScreen
from gpuconsole.ui.widgets.grid import Grid
from tests.support.console_clusters import NOW, busy_org, org_cohort, simulated
from tests.support.console_stage import SIZES, staged

KEYS = {
    "ledger": "b",
    "slots": "F",
    "shares": "f",
    "antipatterns": "L",
    "risk": "K",
    "shadow": "V",
    "drills": "T",
    "alerts": "J",
}
TEXTS = ("ledger", "slots", "shares", "antipatterns")


def test_every_answer_has_a_key() -> None:
    assert KEYS.keys() == SCREENS.keys()


@pytest.mark.parametrize("name", SCREENS)
@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_an_answer_opens_by_its_key_and_escape_leaves_it(name: str, size: tuple[int, int]) -> None:
    async with staged(simulated(org_cohort()), size) as stage:
        await stage.press("2", KEYS[name])
        await stage.settle()
        screen = stage.screen(ConsoleScreen)
        assert screen.crumb() == name
        await stage.press("ctrl+r", "j", "escape")
        assert stage.screen(ConsoleScreen).crumb() == "queues"


@pytest.mark.parametrize("name", TEXTS)
async def test_an_answer_in_words_says_of_when_it_is(name: str) -> None:
    async with staged(simulated(org_cohort())) as stage:
        await stage.press("2", KEYS[name])
        await stage.settle()
        assert len([text for text in stage.lines if text]) > 5
        assert "as of " in stage.text


@pytest.mark.parametrize("name", TEXTS)
async def test_the_title_of_an_answer_is_whole_beside_its_age_in_the_smallest_terminal(name: str) -> None:
    async with staged(simulated(org_cohort()), (80, 24)) as stage:
        await stage.press("2", KEYS[name])
        await stage.settle()
        (summary,) = (line for line in stage.lines if "as of " in line)
        assert "…" not in summary


async def test_the_agreement_with_kueue_lists_both_decisions_of_each_disagreement() -> None:
    found = ShadowDisagreement(
        time=NOW,
        workload="prod/waits",
        queue="cq-prod",
        kind=DecisionKind.RESERVED,
        expected="reserves quota: main×1 nvidia.com/gpu=a100",
        actual="reserves quota: main×1 nvidia.com/gpu=h100",
        cause=DisagreementCause.OTHER_FLAVORS,
    )
    counts = AgreementCounts(decisions=40, agreed=39)
    report = ShadowReport(
        since=NOW - 60_000_000,
        until=NOW,
        counts=counts,
        kinds={DecisionKind.RESERVED: counts},
        states={StateOrigin.CURRENT: 39},
        causes={DisagreementCause.OTHER_FLAVORS: 1},
        disagreements=(found,),
        known_since=NOW,
    )
    screen = report_screen("shadow", "Agreement", lambda asked: shadow_parts(report))
    async with staged(simulated(org_cohort()), (160, 50)) as stage:
        stage.app.push_screen(screen)
        await stage.settle()
        assert "40 Kueue decisions in 1m: the engine agrees with 39 of 40 known ones (97.5%), 0 unknown" in stage.text
        assert "engine: reserves quota: main×1 nvidia.com/gpu=a100" in stage.text
        await stage.press("tab", "tab")
        await stage.settle()
        assert "Kueue: reserves quota: main×1 nvidia.com/gpu=h100" in stage.text


async def test_without_a_live_cluster_there_is_no_agreement_and_the_screen_says_why() -> None:
    async with staged(simulated(org_cohort())) as stage:
        await stage.press(":", *"shadow", "enter")
        await stage.settle()
        assert "no comparison: it needs a live cluster with Kueue, and the worker process" in stage.text


async def test_a_screen_that_needs_the_key_itself_keeps_it_and_the_command_line_opens_the_answer() -> None:
    async with staged(simulated(org_cohort())) as stage:
        await stage.press("7", "b")
        assert not isinstance(stage.app.screen, AnswerScreen)
        await stage.press(":")
        await stage.write("ledger")
        await stage.press("enter")
        assert stage.screen(AnswerScreen).crumb() == "ledger"


async def test_risk_comes_run_by_run_until_it_is_whole() -> None:
    async with staged(simulated(org_cohort()), (160, 50)) as stage:
        await stage.press("2", "K")
        assert stage.screen(AnswerScreen).crumb() == "risk"
        assert "4 workloads may be evicted within 6h" in stage.text
        assert "20 simulation runs from" in stage.text
        assert "run 20 of 20" not in stage.text
        assert "as of 0" in stage.text


async def test_what_a_simulation_measures_is_known_to_the_anti_patterns() -> None:
    simulation = Simulation.from_objects(org_cohort(), policy=SimPolicy(), seed=7, start=NOW)
    async with staged(Console(SimulatedBackend(simulation, measure=True))) as stage:
        await stage.tick(times=3)
        await stage.press("2", "L")
        await stage.settle()
        assert stage.line("no findings")
        assert "no GPU telemetry" not in stage.text


@pytest.mark.parametrize(("size", "shown"), [((80, 24), ""), ((160, 50), "bF")], ids=str)
async def test_the_footer_has_the_keys_of_the_row_and_then_the_next_answer(size: tuple[int, int], shown: str) -> None:
    async with staged(simulated(org_cohort()), size) as stage:
        await stage.press("2", "b")
        (footer,) = (line for line in stage.lines if "? help" in line)
        assert "⏎ open  x explain  i what-if" in footer
        assert [key for key in KEYS.values() if f" {key} " in footer] == list(shown)


def table(name: str, rows: int) -> AnswerTable:
    return AnswerTable((name.upper(),), tuple(Row(key=f"{name}-{n}", cells=(f"{name}-{n}",)) for n in range(rows)))


async def test_tables_share_the_height_by_their_rows() -> None:
    """Four rows need five lines, whatever is in front; the long table gets what is left."""
    parts = [table("flavors", 4), table("domains", 40), table("queues", 12)]
    async with staged(busy_org(), (160, 50)) as stage:
        stage.app.open(report_screen("slots", "Slots", lambda asked: parts))
        await stage.settle()
        heights = []
        for _ in parts:
            heights.append([grid.size.height for grid in stage.screen(AnswerScreen).query(Grid) if grid.display])
            await stage.press("tab")
        body = stage.screen(AnswerScreen).query_one("#body").size.height
        assert heights == [[5, body - 1 - 5 - 13, 13]] * 3
        for words in ("flavors-3", "domains-20", "queues-11"):
            assert stage.line(words)


@given(wants=st.lists(st.integers(2, 60), min_size=1, max_size=6), room=st.integers(8, 60), data=st.data())
def test_no_table_gets_more_than_it_needs_and_no_line_is_wasted(
    wants: list[int], room: int, data: st.DataObject
) -> None:
    front = data.draw(st.integers(0, len(wants) - 1))
    shares = share_height(wants, room, front)
    assert all(1 <= share <= want for share, want in zip(shares, wants, strict=True))
    assert sum(shares) == min(sum(wants), room)
    assert shares[front] >= min(wants[front], room - len(wants) + 1, max(5, room // 2))
    rest = [(share, want) for n, (share, want) in enumerate(zip(shares, wants, strict=True)) if n != front]
    most = max((share for share, _ in rest), default=0)
    assert all(share == want or share >= most - 1 for share, want in rest)


@pytest.mark.parametrize("size", [*SIZES, (160, 50)], ids=str)
async def test_a_zoomed_table_takes_the_whole_body_and_leaves_the_frame(size: tuple[int, int]) -> None:
    async with staged(busy_org(), size) as stage:
        await stage.press("2", "F", "tab")
        grid = stage.screen(AnswerScreen).focused
        body, before = stage.screen(AnswerScreen).query_one("#body").region, stage.lines
        await stage.press("z")
        assert isinstance(grid, Grid)
        assert grid.region.size == body.size
        assert "╱" not in stage.text
        assert stage.lines[0].startswith(" SIM ")
        assert (stage.lines[1], stage.lines[-1]) == (before[1], before[-1])
        await stage.press("z")
        assert stage.lines[1:] == before[1:]


@pytest.mark.parametrize("view", ["1", "2", "3", "4", "5", "6", "7", "8", "9"])
async def test_zoom_shows_no_hatch_on_any_screen(view: str) -> None:
    async with staged(busy_org(), (120, 36)) as stage:
        await stage.press(view)
        if view == "8":
            await stage.press("escape")
        await stage.press("z")
        assert "╱" not in stage.text
