"""Themes: contrast, colour blindness, the user's own files, ASCII glyphs, and the settings that choose them."""

import math
from itertools import combinations, pairwise
from pathlib import Path
from unicodedata import east_asian_width

import pytest
from rich.segment import Segment
from textual.color import Color
from textual.theme import Theme

from gpuconsole.config import is_utf8
from gpuconsole.ui.app import ConsoleApp, Preferences
from gpuconsole.ui.paint import GLYPHS, AsciiGlyphs
from gpuconsole.ui.theme import COLOURS, find_theme, load_theme, load_themes
from tests.support.console_clusters import busy_org as console_of
from tests.support.console_stage import Stage

ROOT = Path(__file__).parents[2]
THEMES = ROOT / "themes"
Rgb = tuple[float, float, float]

# Machado, Oliveira and Fernandes, "A Physiologically-based Model for Simulation of Color Vision Deficiency", 2009,
# severity 1.0; they apply to linear RGB.
DEUTERANOPIA = ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881))
PROTANOPIA = ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998))
TRITANOPIA = ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900))
NORMAL = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))

BAR = ("own", "borrowed", "lent", "idle")
STATES = ("success", "pending", "victim", "idle", "held")
SERIES = tuple(f"series-{number}" for number in range(1, 9))
DISTINCT = 20.0
"""Least distance in CIELAB, in which 2.3 is just noticeable."""


def linear(colour: Color) -> Rgb:
    red, green, blue = ((c / 255) for c in colour.rgb)

    def one(c: float) -> float:
        return c / 12.92 if c <= 0.04045 else float(((c + 0.055) / 1.055) ** 2.4)

    return one(red), one(green), one(blue)


def luminance(colour: Color) -> float:
    """Relative luminance as WCAG 2 defines it."""
    red, green, blue = linear(colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: Color, other: Color) -> float:
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def seen(colour: Color, matrix: tuple[Rgb, Rgb, Rgb]) -> Rgb:
    """The colour in CIELAB (D65) as somebody sees it."""
    before = linear(colour)
    red, green, blue = (min(1.0, max(0.0, sum(m * c for m, c in zip(row, before, strict=True)))) for row in matrix)
    x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.95047
    y = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.08883
    fx, fy, fz = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


def colours(theme: Theme) -> dict[str, Color]:
    named = {name: theme.variables[name] for name in COLOURS} | {"success": theme.success, "accent": theme.accent}
    return {name: Color.parse(str(value)) for name, value in named.items()}


def bundled(name: str) -> Theme:
    return load_theme(THEMES / f"{name}.yaml")


def test_eight_themes_are_bundled_and_the_dark_one_is_the_first() -> None:
    assert [theme.name for theme in load_themes(THEMES)] == [
        "console-dark",
        "console-ansi",
        "console-contrast-dark",
        "console-deuteranopia",
        "console-monochrome",
        "console-tritanopia",
        "console-contrast-light",
        "console-light",
    ]


@pytest.mark.parametrize("name", ["contrast-dark", "contrast-light"])
def test_high_contrast_themes_have_7_to_1_on_every_background(name: str) -> None:
    theme = bundled(name)
    base = Color.parse(str(theme.background))
    # The cursor's row and the row of a table without the focus, as the stylesheet blends them.
    rows = [base.blend(Color.parse(theme.primary), part) for part in (0.40, 0.18)]
    rows += [base.blend(Color.parse(str(theme.foreground)), 0.03)]
    backgrounds = [base, Color.parse(str(theme.surface)), Color.parse(str(theme.panel)), *rows]
    texts = colours(theme) | {
        "foreground": Color.parse(str(theme.foreground)),
        "text-muted": Color.parse(theme.variables["text-muted"]),
        "warning": Color.parse(str(theme.warning)),
        "error": Color.parse(str(theme.error)),
    }
    low = {
        (text, ground.hex): round(contrast(colour, ground), 2)
        for text, colour in texts.items()
        for ground in backgrounds
        if contrast(colour, ground) < 7
    }
    assert low == {}


@pytest.mark.parametrize(
    ("name", "eyes"),
    [
        ("deuteranopia", (NORMAL, DEUTERANOPIA, PROTANOPIA)),
        ("tritanopia", (NORMAL, TRITANOPIA)),
    ],
)
def test_colours_that_mean_different_things_differ_for_the_colour_blind(
    name: str, eyes: tuple[tuple[Rgb, Rgb, Rgb], ...]
) -> None:
    of = colours(bundled(name))
    pairs = {pair for group in (BAR, STATES, SERIES, ("success", "fault")) for pair in combinations(group, 2)}
    close = {
        pair: round(distance)
        for pair in pairs
        if (distance := min(math.dist(seen(of[pair[0]], eye), seen(of[pair[1]], eye)) for eye in eyes)) < DISTINCT
    }
    assert close == {}


def test_the_monochrome_theme_has_greys_only() -> None:
    theme = bundled("monochrome")
    assert {name: colour.hex for name, colour in colours(theme).items() if len(set(colour.rgb)) > 1} == {}


def test_the_ansi_theme_leaves_all_colours_to_the_terminal() -> None:
    assert {name: colour.hex for name, colour in colours(bundled("ansi")).items() if colour.ansi is None} == {}


def test_a_theme_is_found_by_a_part_of_its_name() -> None:
    themes = load_themes(THEMES)
    found = {word: find_theme(themes, word) for word in ("dark", "light", "contrast", "console-ansi", "pink")}
    assert {word: theme.name if theme else "" for word, theme in found.items()} == {
        "dark": "console-dark",
        "light": "console-light",
        "contrast": "console-contrast-dark",
        "console-ansi": "console-ansi",
        "pink": "",
    }


async def test_the_users_theme_is_read_again_when_its_file_changes_and_an_error_leaves_it_as_it_was(
    tmp_path: Path,
) -> None:
    file = tmp_path / "mine.yaml"
    text = (THEMES / "dark.yaml").read_text().replace("console-dark", "mine")
    file.write_text(text)
    (tmp_path / "spoilt.yaml").write_text("name: spoilt\nprimary: bluish\n")
    app = ConsoleApp(console_of(), repaint=0, preferences=Preferences(user_themes=tmp_path))
    async with app.run_test(size=(120, 36)) as pilot:
        stage = Stage(app, pilot)
        await stage.settle()
        (problem,) = app.theme_problems
        assert problem.startswith(f"{tmp_path / 'spoilt.yaml'}: variables: own, borrowed")
        assert [notice.message for notice in app._notifications] == [problem]
        await stage.press("colon")
        await stage.write("theme mine")
        await stage.press("enter")
        assert (app.theme, app.current_theme.variables["own"]) == ("mine", "#5f9ede")

        file.write_text(text.replace('own: "#5f9ede"', 'own: "#010203"'))
        await stage.wait(1.2)
        assert app.current_theme.variables["own"] == "#010203"
        assert app.get_component_styles("role--own").color == Color.parse("#010203")

        file.write_text(text.replace('own: "#5f9ede"', 'own: "rainbow-coloured"'))
        await stage.wait(1.2)
        assert (app.theme, app.current_theme.variables["own"]) == ("mine", "#010203")
        said = [notice.message for notice in app._notifications]
        assert [text for text in said if text.startswith(f"{file}: variables.own: 'rainbow-coloured' is not a colour")]

        await stage.press("colon")
        await stage.write("theme")
        await stage.press("enter")
        assert [name for name in ("console-ansi", "console-light", "mine") if stage.line(name)] == [
            "console-ansi",
            "console-light",
            "mine",
        ]


SPOILT = {
    'name: "a b"': "name: use letters, digits, - and _",
    "dark: maybe": "dark: 'maybe' is not true or false",
    "text_alpha: much": "text_alpha: 'much' is not a number",
}


@pytest.mark.parametrize("line", SPOILT)
def test_a_value_of_the_wrong_kind_is_named(line: str, tmp_path: Path) -> None:
    key = line.split(":")[0]
    lines = [one for one in (THEMES / "dark.yaml").read_text().splitlines() if not one.startswith(f"{key}:")]
    (tmp_path / "t.yaml").write_text("\n".join([line, *lines]))
    with pytest.raises(ValueError, match=SPOILT[line]):
        load_theme(tmp_path / "t.yaml")


def test_any_other_variable_must_be_a_colour_or_a_text_style(tmp_path: Path) -> None:
    text = (THEMES / "dark.yaml").read_text()
    file = tmp_path / "t.yaml"
    file.write_text(text + "  button-focus-text-style: reverse\n  border: red\n")
    assert load_theme(file).variables["border"] == "red"
    for wrong in ("border: '} * { display: none'", "link-style: '; color: red'"):
        file.write_text(f"{text}  {wrong}\n")
        with pytest.raises(ValueError, match="variables"):
            load_theme(file)


def test_ascii_glyphs_are_as_wide_and_states_still_differ() -> None:
    def drawn(text: str) -> str:
        return "".join(segment.text for segment in AsciiGlyphs().apply([Segment(text)], Color(0, 0, 0)))

    assert drawn("╭─ h100-01 ▣▣○ 機 ─╮") == "+- h100-01 ##. ?? -+"
    states = [drawn(glyph) for glyph in GLYPHS.values()]
    assert len(set(states)) == len(GLYPHS)
    assert all(one.isascii() for one in states)
    heights = drawn("▁▂▃▄▅▆▇█")
    assert len(heights) == 8
    assert all(east_asian_width(one) == "Na" for one in heights)
    assert [one == other for one, other in pairwise(drawn("⠀⠁⠇⡇⣿"))] == [False, False, True, False]


def test_every_glyph_of_the_screens_has_an_ascii_likeness() -> None:
    texts = "".join(path.read_text() for path in (ROOT / "gpuconsole").rglob("*.py"))
    glyphs = sorted({one for one in texts if one > "\x7f" and not one.isalpha()})
    drawn = {one: AsciiGlyphs().apply([Segment(one)], Color(0, 0, 0))[0].text for one in glyphs}
    assert [glyph for glyph, likeness in drawn.items() if likeness == "?"] == []


async def test_the_whole_screen_is_drawn_with_ascii_where_that_is_chosen() -> None:
    app = ConsoleApp(console_of(), repaint=0, preferences=Preferences(ascii=True, reduced_motion=True))
    async with app.run_test(size=(120, 36)) as pilot:
        stage = Stage(app, pilot)
        await stage.settle()
        for key in "234":
            await stage.press(key)
            assert [line for line in stage.lines if not line.isascii()] == []
        assert app.animation_level == "none"


def test_ascii_is_chosen_unless_the_locale_is_utf_8() -> None:
    assert is_utf8({})
    assert is_utf8({"LANG": "de_DE.UTF-8"})
    assert is_utf8({"LC_ALL": "", "LANG": "C.utf8"})
    assert not is_utf8({"LC_ALL": "C", "LANG": "de_DE.UTF-8"})
    assert not is_utf8({"LC_CTYPE": "ru_RU.KOI8-R"})
