"""Text panes wrap at words, keep indentation, and show YAML of anything without failing."""

import pytest
from textual.app import App, ComposeResult

from gpuconsole.ui.paint import plain
from gpuconsole.ui.widgets.textpane import Pick, TextPane, text_line, wrapped, yaml_lines

WRAPS = {
    "what fits stays": ("needs 6", 20, ["needs 6"]),
    "a long line breaks at a blank": ("needs 6 own quota left 0", 14, ["needs 6 own", "quota left 0"]),
    "the next lines keep the indentation": ("  needs 6 own quota", 12, ["  needs 6", "  own quota"]),
    "the next lines of a value begin below it": ("  fix  needs 6 own", 14, ["  fix  needs 6", "       own"]),
    "the next lines of a remark begin below its text": (" ✖ needs 6 own", 10, [" ✖ needs 6", "   own"]),
    "also where a name stands before it": ("✖ a/b  needs 6 own", 15, ["✖ a/b  needs 6", "       own"]),
    "a word that is too long is cut": ("a" * 25, 10, ["a" * 10, "a" * 10, "a" * 5]),
    "wide characters count twice": ("漢字漢字 漢字", 10, ["漢字漢字", "漢字"]),
    "an amount stays with its sign": ("it costs 12.50 $ a day", 15, ["it costs", "12.50 $ a day"]),
}


@pytest.mark.parametrize("case", WRAPS)
def test_wrapping(case: str) -> None:
    text, width, want = WRAPS[case]
    assert [plain(row) for row in wrapped(text_line(text), width)] == want


def test_roles_survive_wrapping() -> None:
    assert wrapped(text_line(("own quota ", "own"), ("is used up", "fault")), 13) == [
        (("own ", "own"), ("quota ", "own"), ("is", "fault")),
        (("used ", "fault"), ("up", "fault")),
    ]


def test_yaml_keys_are_told_from_values() -> None:
    assert yaml_lines("spec:\n  queueName: lq\n  - 'a: b'\n# note\n---\nplain") == [
        (("spec:", "dim"), ("", "")),
        (("  queueName:", "dim"), (" lq", "")),
        (("  - 'a:", "dim"), (" b'", "")),
        (("# note", "dim"),),
        (("---", "dim"),),
        (("plain", ""),),
    ]


class OnePane(App[None]):
    """A pane of 20 x 4."""

    CSS = "TextPane { scrollbar-size: 1 1; }"

    def __init__(self, *, wrap: bool = True) -> None:
        super().__init__()
        self._wrap = wrap

    def compose(self) -> ComposeResult:
        yield TextPane(wrap=self._wrap)


@pytest.mark.parametrize(("lines", "width"), [(4, 20), (5, 19)])
async def test_nothing_is_hidden_by_the_scroll_bar_that_many_lines_bring(lines: int, width: int) -> None:
    app = OnePane()
    async with app.run_test(size=(20, 4)) as pilot:
        pane = app.query_one(TextPane)
        pane.show([text_line("x" * width)] * lines)
        await pilot.pause()
        assert pane.virtual_size == (width, lines)
        assert (pane.show_vertical_scrollbar, pane.show_horizontal_scrollbar) == (lines > 4, False)


@pytest.mark.parametrize(("text", "want"), [("x" * 20, "x" * 20), ("GPUs 1234567 in all 8", "GPUs 1234567 in all…")])
async def test_what_is_cut_at_the_edge_looks_cut_and_never_like_a_smaller_number(text: str, want: str) -> None:
    app = OnePane(wrap=False)
    async with app.run_test(size=(20, 4)) as pilot:
        pane = app.query_one(TextPane)
        pane.show([text_line(text)])
        await pilot.pause()
        assert pane.render_line(0).text == want
        pane.scroll_to(x=5, animate=False)
        await pilot.pause()
        assert pane.render_line(0).text.rstrip() == text[pane.scroll_offset.x :]


async def test_the_cursor_goes_from_pick_to_pick_in_sight_and_the_text_is_scrolled_where_there_is_none() -> None:
    app = OnePane()
    texts = [text_line(f" {number}") for number in range(10)]
    picks = {2: "two", 3: "three", 8: "eight"}
    async with app.run_test(size=(20, 4)) as pilot:
        pane = app.query_one(TextPane)
        pane.show([Pick(text, picks[n]) if n in picks else text for n, text in enumerate(texts)])
        await pilot.pause()

        async def step(way: int) -> tuple[str, int]:
            pane.step(way)
            await pilot.pause()
            return pane.picked, pane.scroll_offset.y

        down = [await step(1) for _ in range(7)]
        assert down[:4] == [("two", 0), ("three", 0), ("three", 1), ("three", 2)]
        assert down[4:] == [("three", 3), ("", 4), ("", 5)]
        assert [await step(1), await step(-1)] == [("eight", 5), ("", 4)]
        assert pane.render_line(0).text.startswith(" 4")


async def test_the_cursor_stays_with_what_it_is_on_when_lines_come_before_it() -> None:
    app = OnePane()
    async with app.run_test(size=(20, 4)) as pilot:
        pane = app.query_one(TextPane)
        pane.show([Pick(text_line(" a"), "a"), Pick(text_line(" b"), "b")])
        await pilot.pause()
        pane.step(1)
        pane.step(1)
        pane.show([text_line(" new"), Pick(text_line(" a"), "a"), Pick(text_line(" b"), "b")])
        await pilot.pause()
        assert pane.picked == "b"
        assert [pane.render_line(y).text[:2] for y in range(3)] == [" n", " a", "▌b"]
