"""Panels of the dashboard: how they share the room, what is left out, and what the operator can change."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.geometry import Region, Size

from gpuconsole.ui.app import ConsoleApp, Preferences
from gpuconsole.ui.widgets.panels import Panel, PanelChoice, PanelLayout, arrange
from tests.support.console_clusters import history, org_cohort, recorded
from tests.support.console_stage import Stage, staged

CARDS = (
    Panel(id="gpus", title="GPUs", group="totals", width=40, height=4, rank=1),
    Panel(id="cost", title="Cost", group="totals", width=20, height=4, rank=9),
)
QUEUES = Panel(id="queues", title="Queues", group="lists", width=60, height=6)
TREND = Panel(id="trend", title="Trend", group="recent", width=60, height=3, rank=5, grows=True)
PANELS = (*CARDS, QUEUES, TREND)


def placed(width: int, height: int, large: frozenset[str] = frozenset(), want: int = 0) -> dict[str, Region]:
    return arrange(PANELS, large, lambda id, width: want, Size(width, height))


def test_neighbours_of_a_group_stand_side_by_side_and_the_panel_that_grows_takes_the_rest() -> None:
    assert placed(90, 20) == {
        "gpus": Region(0, 0, 60, 4),
        "cost": Region(60, 0, 30, 4),
        "queues": Region(0, 4, 90, 6),
        "trend": Region(0, 10, 90, 10),
    }


def test_panels_of_the_highest_rank_that_frees_lines_are_left_out_first() -> None:
    assert set(placed(90, 12)) == {"gpus", "cost", "queues"}, "the trend frees three lines, the cost none"
    assert set(placed(59, 15)) == {"gpus", "queues", "trend"}, "the cost would have lines of its own"
    assert set(placed(59, 1)) == {"queues"}


def test_panels_grow_up_to_what_they_want_before_one_takes_the_rest() -> None:
    assert [region.height for region in placed(90, 24, want=8).values()] == [8, 8, 8, 8]


def test_a_large_panel_has_the_whole_width_and_the_free_lines() -> None:
    found = placed(90, 30, frozenset({"cost"}))
    assert (found["gpus"], found["cost"]) == (Region(0, 0, 90, 4), Region(0, 4, 90, 17))


@given(st.integers(1, 300), st.integers(1, 100), st.frozensets(st.sampled_from([one.id for one in PANELS])))
def test_panels_never_overlap_and_fill_the_room(width: int, height: int, large: frozenset[str]) -> None:
    found = placed(width, height, large, want=7)
    assert found
    assert sum(region.area for region in found.values()) == width * max(height, 6 if len(found) == 1 else 0)
    regions = list(found.values())
    assert not any(a.overlaps(b) for place, a in enumerate(regions) for b in regions[:place])


def test_a_layout_is_remembered(tmp_path: Path) -> None:
    file = tmp_path / "state" / "dashboard.json"
    layout = PanelLayout(PANELS, file)
    layout.change("cost", hidden=True)
    layout.change("trend", large=True)
    assert layout.move("trend", -1)
    assert not layout.move("gpus", -1)
    found = PanelLayout(PANELS, file)
    assert [one.id for one in found.shown] == ["gpus", "trend", "queues"]
    assert found.large == {"trend"}
    found.reset()
    assert PanelLayout(PANELS, file).choices == tuple(PanelChoice(one.id) for one in PANELS)


@pytest.mark.parametrize("text", ["", "[1]", '[{"id": "cost", "hidden": 7}]', "\x1b]0;pwned\x07"])
def test_a_broken_file_leaves_the_first_layout(tmp_path: Path, text: str) -> None:
    file = tmp_path / "dashboard.json"
    file.write_text(text)
    assert PanelLayout(PANELS, file).shown == list(PANELS)


def test_panels_that_are_new_or_unknown_change_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "dashboard.json"
    file.write_text('[{"id": "trend", "large": true}, {"id": "gone"}, {"id": "trend"}]')
    assert [one.id for one in PanelLayout(PANELS, file).shown] == ["trend", "gpus", "cost", "queues"]


async def test_a_console_remembers_the_panels(tmp_path: Path) -> None:
    for titles in ((True, True), (False, True)):
        console = recorded(org_cohort(), history())
        app = ConsoleApp(console, repaint=0, preferences=Preferences(layout_file=tmp_path / "dashboard.json"))
        async with app.run_test(size=(160, 50)) as pilot:
            stage = Stage(app, pilot)
            await stage.settle()
            assert tuple(f"─ {title} ─" in stage.text for title in ("Cost", "Queues")) == titles
            app.screen.query_one("#cost").focus()
            await stage.press("Z", "h")


async def test_panels_are_opened_hidden_enlarged_moved_and_shown_again() -> None:
    async with staged(recorded(org_cohort(), history()), (160, 50)) as stage:
        assert all(f"─ {title} ─" in stage.text for title in ("GPUs", "Pending", "Cost", "Queues", "GPU map"))
        screen = stage.app.screen
        screen.query_one("#cost").focus()
        await stage.press("Z", "h")
        assert "─ Cost ─" not in stage.text
        screen.query_one("#waiting").focus()
        await stage.press("Z", "e")
        assert screen.query_one("#waiting").size.width > 140
        await stage.press("Z", "p")
        assert stage.line("─ Pending ─") == stage.lines[2]
        await stage.press("Z", "s", "enter")
        assert "─ Cost ─" in stage.text
        await stage.press("Z", "r")
        assert "─ GPUs ─" in stage.lines[2]
        assert "─ Cost ─" in stage.lines[2]
        await stage.press("z")
        assert "─ Pending ─" in stage.lines[2]
        assert screen.query_one("#waiting").size.height > 40
        await stage.press("z")
        assert "─ GPUs ─" in stage.lines[2]
        await stage.press("enter")
        assert stage.app.view == "workloads", "Enter opens the screen of the active panel"
