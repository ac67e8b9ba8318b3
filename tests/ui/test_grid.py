"""The grid draws its visible rows only, and its cursor stays on its row through refreshes, sorts and filters."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace

import pytest
from textual.app import App, ComposeResult
from textual.pilot import Pilot
from textual.screen import Screen

from gpuconsole.ui.paint import ROLE_CLASSES
from gpuconsole.ui.table_model import Column, fit, parse_filter
from gpuconsole.ui.widgets import grid as grids
from gpuconsole.ui.widgets.grid import HOLD, PAUSE, Grid
from gpuconsole.ui.widgets.painter import PaneState
from tests.support.console_stage import hold_up


@dataclass(frozen=True)
class Row:
    name: str
    gpus: int = 0
    label: str = ""


DRAWN: list[str] = []


def name_of(row: Row) -> str:
    DRAWN.append(row.name)
    return row.name


COLUMNS: tuple[Column[Row], ...] = (
    Column("NAME", name_of, id="name", width=8, flex=1, sort=lambda row: row.name),
    Column("GPUS", lambda row: str(row.gpus), id="usage", width=5, align="right", sort=lambda row: row.gpus, down=True),
)


class GridApp(App[None]):
    CSS = " ".join(f".{name} {{ text-style: bold; }}" for name in sorted(ROLE_CLASSES))

    def compose(self) -> ComposeResult:
        yield Grid(
            COLUMNS,
            key=lambda row: row.name,
            labels=lambda row: {"team": row.label} if row.label else {},
            fault=lambda row: row.gpus < 0,
            empty="No rows at all.",
        )

    @property
    def grid(self) -> Grid[Row]:
        return self.query_one(Grid)

    def lines(self) -> list[str]:
        return [self.grid.render_line(y).text.rstrip() for y in range(self.grid.size.height)]


def rows(*names: str) -> list[Row]:
    return [Row(name, gpus) for gpus, name in enumerate(names)]


def names(app: GridApp) -> list[str]:
    return [row.name for row in app.grid.rows]


def here(app: GridApp) -> str:
    current = app.grid.current
    return current.name if current is not None else ""


async def shown(pilot: Pilot[None], *found: Row) -> None:
    app = pilot.app
    assert isinstance(app, GridApp)
    app.grid.show(list(found))
    await pilot.pause()


async def read(grid: Grid[Row], pilot: Pilot[None]) -> None:
    """Let it read its rows for a filter, a few at a time, until it stops."""
    for _ in range(500):
        await pilot.pause(0.01)
        if not grid._reading:
            break


async def test_rows_stand_under_their_titles_with_cursor_and_alignment() -> None:
    app = GridApp()
    async with app.run_test(size=(24, 5)) as pilot:
        await shown(pilot, Row("a", 1), Row("b", 12))
        assert app.lines() == [
            "  NAME              GPUS",
            "▌ a                    1",
            "  b                   12",
            "",
            "",
        ]


async def test_only_what_can_be_seen_is_formatted_among_a_hundred_thousand_rows() -> None:
    app = GridApp()
    async with app.run_test(size=(40, 10)) as pilot:
        DRAWN.clear()
        await shown(pilot, *(Row(f"row-{number:06}", number) for number in range(100_000)))
        app.grid.bottom()
        await pilot.pause()
        assert here(app) == "row-099999"
        assert app.lines()[-1].startswith("▌ row-099999")
        assert len(set(DRAWN)) <= 30


async def test_rows_that_come_and_go_move_the_scrollbar() -> None:
    app = GridApp()
    async with app.run_test(size=(40, 10)) as pilot:
        await shown(pilot, *(Row(f"row-{number}") for number in range(100)))
        app.grid.bottom()
        await shown(pilot, *(Row(f"row-{number}") for number in range(60)))
        assert app.grid.vertical_scrollbar.window_virtual_size == 61
        assert (app.grid.max_scroll_y, app.grid.scroll_y) == (51, 51)
        assert app.lines()[-1].startswith("▌ row-59"), "the end of the list, not emptiness behind it"
        await shown(pilot, Row("only"))
        assert not app.grid.show_vertical_scrollbar
        assert app.lines()[1].startswith("▌ only")


async def test_the_last_column_gives_way_to_the_scrollbar() -> None:
    app = GridApp()
    async with app.run_test(size=(24, 6)) as pilot:
        await shown(pilot, *(Row(f"r{number}", 10) for number in range(3)))
        assert app.lines()[1] == "▌ r0                  10"
        await shown(pilot, *(Row(f"r{number}", 10) for number in range(30)))
        assert app.lines()[1] == "▌ r0                 10"
        await shown(pilot, Row("r0", 10))
        assert app.lines()[1] == "▌ r0                  10"


async def test_a_known_row_is_not_formatted_again_when_the_cursor_comes_back() -> None:
    app = GridApp()
    async with app.run_test(size=(40, 10)) as pilot:
        await shown(pilot, *rows("a", "b", "c"))
        app.grid.move(1)
        app.grid.move(-1)
        await pilot.pause()
        DRAWN.clear()
        for _ in range(3):
            app.grid.move(1)
            app.grid.move(-1)
            await pilot.pause()
        assert DRAWN == []


async def test_the_cursor_stays_on_its_row_when_rows_come_before_it() -> None:
    app = GridApp()
    async with app.run_test(size=(40, 10)) as pilot:
        await shown(pilot, *rows("a", "b", "c"))
        app.grid.move(1)
        await shown(pilot, *rows("x", "y", "a", "b", "c"))
        assert here(app) == "b"
        await shown(pilot, *rows("c", "a"))
        assert here(app) == "a", "its row is gone: the neighbour at its place"
        await shown(pilot)
        assert here(app) == ""


async def test_a_cursor_that_nobody_moved_rests_on_the_first_row() -> None:
    app = GridApp()
    async with app.run_test(size=(40, 10)) as pilot:
        await shown(pilot, *rows("a", "b"))
        await shown(pilot, *rows("x", "a", "b"))
        assert here(app) == "x"
        app.grid.move(1)
        app.grid.move(-1)
        await shown(pilot, *rows("y", "x", "a"))
        assert here(app) == "x", "chosen now"


async def test_a_list_that_grows_at_the_top_is_followed_from_the_top_only() -> None:
    app = GridApp()
    async with app.run_test(size=(40, 10)) as pilot:
        app.grid._rows._follow = True
        await shown(pilot, *rows("a", "b"))
        app.grid.move(1)
        await shown(pilot, *rows("x", "a", "b"))
        assert here(app) == "b"
        app.grid.top()
        await shown(pilot, *rows("y", "x", "a"))
        assert here(app) == "y"


async def test_the_cursor_stays_on_its_row_through_sorts_and_filters() -> None:
    app = GridApp()
    async with app.run_test(size=(40, 10)) as pilot:
        await shown(pilot, *rows("c", "a", "b"))
        app.grid.move_to_key("a")
        app.grid.sort("name")
        assert (names(app), here(app)) == (["a", "b", "c"], "a")
        app.grid.sort("name")
        assert (names(app), here(app)) == (["c", "b", "a"], "a")
        app.grid.sort("name")
        assert (names(app), here(app)) == (["c", "a", "b"], "a"), "the third time drops the order"
        app.grid.sort("usage")
        assert names(app) == ["b", "a", "c"], "numbers start with the largest"
        app.grid.set_filter(parse_filter("!c"))
        assert (names(app), here(app)) == (["b", "a"], "a")


FILTERS = {
    "a regular expression": ("^al|ta", ["alpha", "beta"]),
    "letter case does not matter": ("ALPHA", ["alpha"]),
    "an inverse one": ("!alpha", ["beta", "gamma"]),
    "a fuzzy one": ("-f gma", ["gamma"]),
    "a whole word": ("-w beta", ["beta"]),
    "no part of a word": ("-w bet", []),
    "a word means what it says": ("-w .*", []),
    "a label": ("-l team=red", ["alpha"]),
    "not that label": ("-l team!=red", ["beta", "gamma"]),
    "the label exists": ("-l team", ["alpha", "beta"]),
    "the label does not exist": ("-l !team", ["gamma"]),
    "all terms hold": ("-l team,team!=red", ["beta"]),
    "other columns count too": ("99", ["gamma"]),
    "nothing asks for nothing": ("  ", ["alpha", "beta", "gamma"]),
}


@pytest.mark.parametrize("case", FILTERS)
async def test_filters(case: str) -> None:
    text, want = FILTERS[case]
    app = GridApp()
    async with app.run_test(size=(40, 10)) as pilot:
        await shown(pilot, Row("alpha", 1, "red"), Row("beta", 2, "blue"), Row("gamma", 99))
        app.grid.set_filter(parse_filter(text))
        assert names(app) == want


async def test_a_filter_that_is_expected_finds_its_rows_read_already() -> None:
    app = GridApp()
    async with app.run_test(size=(40, 10)) as pilot:
        await shown(pilot, *(Row(f"row-{number}") for number in range(1000)))
        app.grid.expect_filter()
        await read(app.grid, pilot)
        DRAWN.clear()
        app.grid.set_filter(parse_filter("row-99"))
        assert names(app) == ["row-99", *(f"row-{number}" for number in range(990, 1000))]
        assert set(DRAWN) <= set(names(app)), "only what is drawn is formatted"


async def test_marks_follow_their_rows_and_leave_with_them() -> None:
    app = GridApp()
    async with app.run_test(size=(40, 10)) as pilot:
        await shown(pilot, *rows("a", "b", "c", "d"))
        app.grid.toggle_mark()
        app.grid.move(1)
        app.grid.mark_range()
        assert [row.name for row in app.grid.targets] == ["a", "b", "c"]
        await shown(pilot, *rows("c", "d", "a"))
        assert [row.name for row in app.grid.marked] == ["c", "a"]
        app.grid.unmark()
        assert [row.name for row in app.grid.targets] == [here(app)]


async def test_states_look_different() -> None:
    app = GridApp()
    async with app.run_test(size=(60, 6)) as pilot:
        await pilot.pause()
        looks = {PaneState.LOADING: app.lines()[2]}
        await shown(pilot)
        looks[PaneState.EMPTY] = app.lines()[2]
        app.grid.say(PaneState.FORBIDDEN, "you cannot list nodes")
        looks[PaneState.FORBIDDEN] = app.lines()[2]
        app.grid.say(PaneState.FAILED, "the store is locked")
        looks[PaneState.FAILED] = app.lines()[2]
    assert looks == {
        PaneState.LOADING: "  … Loading",
        PaneState.EMPTY: "  ○ No rows at all.",
        PaneState.FORBIDDEN: "  ⊘ Forbidden: you cannot list nodes",
        PaneState.FAILED: "  ✖ Failed: the store is locked",
    }


async def test_a_filter_that_nothing_passes_says_how_to_be_rid_of_it() -> None:
    app = GridApp()
    async with app.run_test(size=(70, 6)) as pilot:
        await shown(pilot, *rows("a", "b"))
        app.grid.set_filter(parse_filter("zzz"))
        assert app.lines()[2] == "  ○ None of 2 rows matches /zzz (Esc clears the filter)."
        app.grid.set_filter(parse_filter("-w zzz"))
        assert app.lines()[2] == "  ○ zzz not found: none of 2 rows matches (Esc shows all)."
        app.grid.set_filter(None)
        app.grid.toggle_faults()
        assert app.lines()[2] == "  ○ None of 2 rows has a fault (! shows all)."


async def test_a_click_moves_the_cursor_and_a_click_on_a_title_sorts() -> None:
    app = GridApp()
    async with app.run_test(size=(40, 10)) as pilot:
        await shown(pilot, *rows("b", "c", "a"))
        await pilot.click(Grid, offset=(4, 3))
        assert here(app) == "a"
        await pilot.click(Grid, offset=(4, 0))
        assert names(app) == ["a", "b", "c"]
        assert app.lines()[0].startswith("  NAME↑")


async def test_a_sort_stays_when_the_columns_are_made_anew() -> None:
    app = GridApp()
    async with app.run_test(size=(40, 10)) as pilot:
        await shown(pilot, *rows("a", "b"))
        app.grid.sort("usage")
        app.grid.columns = tuple(replace(column, width=9) for column in COLUMNS)
        await shown(pilot, *rows("a", "b", "c"))
        assert (names(app), here(app)) == (["c", "b", "a"], "c")
        assert app.lines()[0].endswith("GPUS↓")
        app.grid.columns = COLUMNS[:1]
        await shown(pilot, *rows("a", "b"))
        assert names(app) == ["a", "b"]


async def test_wide_shows_every_column_and_scrolls_sideways() -> None:
    app = GridApp()
    async with app.run_test(size=(12, 6)) as pilot:
        app.grid.columns = [Column(f"C{number}", lambda row: row.name, width=8, rank=number) for number in range(5)]
        await shown(pilot, *rows("a"))
        assert app.lines()[0].split() == ["C0"]
        app.grid.toggle_wide()
        await pilot.pause()
        assert app.grid.virtual_size.width == 2 + 5 * 8 + 4
        app.grid.scroll_to(x=9, animate=False)
        await pilot.pause()
        assert app.lines()[0].split() == ["C1", "C"]


HOSTILE = {
    "markup": ("[red]x[/red]", "[red]x[/red]"),
    "an unclosed tag": ("[/oops]", "[/oops]"),
    "an escape sequence": ("a\x1b]0;pwned\x1b\\b", "a�]0;pwned�\\b"),
    "a C1 control": ("a\x9b31mb", "a�31mb"),
    "right to left": ("a\u202eb", "a�b"),
    "a line break": ("a\nb", "a�b"),
}


@pytest.mark.parametrize("case", HOSTILE)
async def test_hostile_text_is_shown_and_does_nothing(case: str) -> None:
    text, want = HOSTILE[case]
    app = GridApp()
    async with app.run_test(size=(40, 6)) as pilot:
        await shown(pilot, Row(text, 1))
        assert app.lines()[1] == f"▌ {want}".ljust(39) + "1"


async def test_wide_characters_keep_the_columns_straight() -> None:
    app = GridApp()
    async with app.run_test(size=(20, 6)) as pilot:
        await shown(pilot, Row("漢字漢字漢字漢字", 7), Row("ab", 8))
        assert app.lines()[1:3] == ["▌ 漢字漢字漢 …     7", "  ab               8"]


FITS: dict[str, tuple[int, bool, list[tuple[str, int]]]] = {
    "all fit, the flexible one takes the rest": (40, False, [("a", 28), ("b", 5), ("c", 5)]),
    "the highest rank goes first": (17, False, [("a", 11), ("b", 5)]),
    "rank 0 stays even where there is no room": (6, False, [("a", 8)]),
    "wide keeps them all": (6, True, [("a", 8), ("b", 5), ("c", 5)]),
}


@pytest.mark.parametrize("case", FITS)
def test_columns_that_fit(case: str) -> None:
    width, wide, want = FITS[case]
    columns: list[Column[Row]] = [
        Column("a", name_of, width=8, flex=1),
        Column("b", name_of, width=5, rank=1),
        Column("c", name_of, width=5, rank=2),
    ]
    assert [(column.title, size) for column, size in fit(columns, width, wide)] == want


async def test_no_more_rows_are_read_while_a_key_of_a_filter_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grids, "READ", 0)
    now = 100.0
    waits: list[tuple[float, Callable[[], object]]] = []
    app = GridApp()
    async with app.run_test(size=(40, 10)) as pilot:
        await shown(pilot, *rows("a", "b", "c"))
        DRAWN.clear()
        monkeypatch.setattr(grids, "time", SimpleNamespace(monotonic=lambda: now))
        monkeypatch.setattr(app.grid, "set_timer", lambda wait, then: waits.append((round(wait, 3), then)))
        app.grid.expect_filter()
        now += PAUSE
        waits.pop()[1]()
        assert ([wait for wait, _ in waits], DRAWN) == ([round(HOLD - PAUSE, 3)], ["a"]), (
            "the filter line is drawn first"
        )
        now += HOLD - PAUSE
        waits.pop()[1]()
        assert ([wait for wait, _ in waits], DRAWN) == ([PAUSE], ["a", "b"])
        app.grid.set_filter(parse_filter("c"))
        waits.pop()[1]()
        assert ([wait for wait, _ in waits], DRAWN) == ([HOLD], ["a", "b"]), "and so is a letter"
        now += HOLD
        for _ in range(2):
            waits.pop()[1]()
        assert (waits, names(app)) == ([], ["c"])


async def test_many_rows_are_filtered_after_the_letter_was_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    waits: list[tuple[float, Callable[[], object]]] = []
    monkeypatch.setattr(grids, "MANY", 3)
    app = GridApp()
    async with app.run_test(size=(40, 10)) as pilot:
        monkeypatch.setattr(grids, "time", SimpleNamespace(monotonic=lambda: now))
        monkeypatch.setattr(app.grid, "set_timer", lambda wait, then: waits.append((round(wait, 3), then)))
        await shown(pilot, *rows("a", "b", "c", "d"))
        app.grid.set_filter(parse_filter("b"))
        assert ([wait for wait, _ in waits], names(app)) == ([HOLD], ["a", "b", "c", "d"])
        now += HOLD
        waits.pop()[1]()
        assert (waits, names(app)) == ([], ["b"])
        app.grid.set_filter(None)
        assert (waits, names(app)) == ([], ["a", "b", "c", "d"]), "all rows come back at once"


async def test_a_filter_waits_until_all_rows_are_read_and_keys_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grids, "READ", 0)
    monkeypatch.setattr(grids, "HOLD", 0)
    app = GridApp()
    async with app.run_test(size=(40, 10)) as pilot:
        await shown(pilot, *rows("a", "b", "c", "d", "e"))
        DRAWN.clear()
        app.grid.expect_filter()
        assert DRAWN == ["a"], "a few at a time"
        app.grid.expect_filter()
        assert DRAWN == ["a"], "it is being read already"
        app.grid.set_filter(parse_filter("[ace]"))
        assert names(app) == ["a", "b", "c", "d", "e"]
        app.grid.move(1)
        assert here(app) == "b"
        await read(app.grid, pilot)
        assert names(app) == ["a", "c", "e"]


async def test_all_rows_are_read_though_the_process_is_held_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grids, "READ", 0)
    app = GridApp()
    async with app.run_test(size=(40, 10)) as pilot:
        await shown(pilot, *rows("a", "b", "c"))
        hold_up(monkeypatch)
        app.grid.expect_filter()
        app.grid.set_filter(parse_filter("c"))
        await read(app.grid, pilot)
        assert names(app) == ["c"]


async def test_rows_are_read_no_further_once_the_screen_is_left_without_a_filter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(grids, "READ", 0)
    app = GridApp()
    async with app.run_test(size=(40, 10)) as pilot:
        await shown(pilot, *(Row(f"row-{number}") for number in range(1000)))
        grid = app.grid
        DRAWN.clear()
        grid.expect_filter()
        await app.push_screen(Screen())
        await read(grid, pilot)
        assert len(DRAWN) < 1000
        app.pop_screen()
        await pilot.pause()
        grid.set_filter(parse_filter("row-99"))
        assert names(app) == ["row-99", *(f"row-{number}" for number in range(990, 1000))]
