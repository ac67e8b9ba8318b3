"""The small parts of the shell: bars, numbers, themes, the registry, the command line, the header."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from rich.style import Style
from textual.color import Color
from textual.fuzzy import Matcher

from gpuconsole.insight.health.engines import Engine, EnginesInForce
from gpuconsole.insight.index.quota_tree import QuotaUse
from gpuconsole.model.clock import DAY, HOUR, MINUTE, SECOND
from gpuconsole.model.resources import GPU
from gpuconsole.services.status import ConsoleMode, ConsoleStatus
from gpuconsole.ui import format as fmt
from gpuconsole.ui.actions import ACTIONS, ALIASES, BY_ID, Scope
from gpuconsole.ui.actions.keymap import DEFAULT
from gpuconsole.ui.actions.keys import continuations, find, spell
from gpuconsole.ui.app import ViewHistory
from gpuconsole.ui.field_filter import FilterError
from gpuconsole.ui.paint import GLYPHS, line, plain
from gpuconsole.ui.screens.global_actions import wrong_speed
from gpuconsole.ui.screens.views import VIEWS
from gpuconsole.ui.table_model import parse_filter
from gpuconsole.ui.theme import COLOURS, ThemeError, load_theme
from gpuconsole.ui.widgets.command_line import CommandError, parse_command
from gpuconsole.ui.widgets.dialogs import PaletteEntry, menu, ranked, whole_number
from gpuconsole.ui.widgets.header_footer import engine_words, fit_parts, left_parts, mode, right_part
from gpuconsole.ui.widgets.painter import bar, gauge, pool, share, spark
from tests.support.console_clusters import KUEUE

THEMES = Path(__file__).parents[2] / "themes"

BARS = {
    "own quota, a tick, borrowed, borrowable": (
        QuotaUse(nominal=8, used=12, borrowed=4, potential=16),
        "████████│▓▓▓▓····",
    ),
    "idle quota, some of it lent": (QuotaUse(nominal=16, used=8, lent=4, potential=16), "████████░░░░▼▼▼▼│"),
    "a little is still a cell": (QuotaUse(nominal=160, used=1, potential=160), "█░░░░░░░░░░░░░░░│"),
    "quota cut under what runs": (QuotaUse(nominal=4, used=16, borrowed=12, potential=4), "████│▓▓▓▓▓▓▓▓▓▓▓▓"),
    "own quota stays readable in a large cohort": (QuotaUse(nominal=8, used=4, potential=800), "███░░░│·········›"),
    "no quota at all": (QuotaUse(), "················ ".strip() + "·"),
}


@pytest.mark.parametrize("case", BARS)
def test_a_queues_bar(case: str) -> None:
    use, want = BARS[case]
    assert plain(bar(use, 17)) == want


POOLS = {
    "what members use on own quota and on each other's": (
        QuotaUse(nominal=24, used=20, borrowed=4, lent=4, potential=24),
        "████████████████▓▓▓▓░░░░",
    ),
    "empty": (QuotaUse(nominal=24, potential=24), "░" * 24),
    "no quota": (QuotaUse(), "·" * 24),
}


@pytest.mark.parametrize("case", POOLS)
def test_a_cohorts_bar(case: str) -> None:
    use, want = POOLS[case]
    assert plain(pool(use, 24)) == want


SHARES: dict[str, tuple[int, tuple[int, ...], tuple[int, ...]]] = {
    "in proportion": (10, (1, 1, 3), (2, 2, 6)),
    "largest remainder": (10, (1, 1, 1), (4, 3, 3)),
    "not zero is seen": (4, (1, 1000, 0, 1), (1, 2, 0, 1)),
    "nothing to share": (4, (0, 0), (0, 4)),
}


@pytest.mark.parametrize("case", SHARES)
def test_cells_are_shared(case: str) -> None:
    cells, amounts, want = SHARES[case]
    assert share(cells, amounts) == want


def test_small_pictures() -> None:
    assert plain(gauge(3, 4, 8)) == "██████░░"
    assert plain(gauge(0, 0, 4)) == "░░░░"
    assert spark([0, 1, 2, 4]) == "▁▂▄▇"
    assert spark([0, 0]) == "▁▁"


def test_numbers_are_written_as_people_read_them() -> None:
    assert [fmt.age(span) for span in (0, 45 * SECOND, 90 * SECOND, 12 * MINUTE, 3 * HOUR + 600 * SECOND, 2 * DAY)] == [
        "0s",
        "45s",
        "1m30s",
        "12m",
        "3h10m",
        "2d0h",
    ]
    assert [fmt.amount("cpu", 1500), fmt.amount("cpu", 64_000), fmt.amount(GPU, 15_000)] == ["1.5", "64", "15,000"]
    assert [fmt.amount("memory", 512 * 2**30), fmt.amount("memory", 3 * 2**29)] == ["512Gi", "1.5Gi"]
    assert [fmt.percent(12, 16), fmt.percent(1, 0)] == ["75%", "–"]
    assert [fmt.money(7.7), fmt.money(12_345.6), fmt.gpu_hours(12_600)] == ["$7.70", "$12,346", "3.5 GPU-hours"]
    assert [fmt.money(12_345.6, cents=True), fmt.money(-3.0)] == ["$12,345.60", "-$3.00"]
    assert [fmt.factor(60), fmt.factor(1000), fmt.factor(0.5)] == ["×60", "×1,000", "×0.5"]
    assert fmt.date_and_clock(1_767_604_460_000_000) == "Mon 5 Jan 09:14:20"


# Themes


SPOILT: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "an unknown key": (lambda theme: theme | {"colour": "red"}, "unknown colour"),
    "a colour that is none": (lambda theme: theme | {"primary": "bluish"}, "primary: 'bluish' is not a colour"),
    "a role that is missing": (
        lambda theme: theme | {"variables": {k: v for k, v in theme["variables"].items() if k != "lent"}},
        "variables: lent missing",
    ),
    "a role that is not a colour": (
        lambda theme: theme | {"variables": theme["variables"] | {"own": "#12"}},
        "variables.own: '#12' is not a colour",
    ),
    "no name": (lambda theme: {k: v for k, v in theme.items() if k != "name"}, "name and primary are required"),
    "no mapping": (lambda theme: ["red"], "not a theme: it must be a mapping with name, primary and variables"),
}


@pytest.mark.parametrize("case", SPOILT)
def test_a_spoilt_theme_is_refused_with_the_reason(case: str, tmp_path: Path) -> None:
    spoil, want = SPOILT[case]
    good = yaml.safe_load((THEMES / "dark.yaml").read_text())
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(spoil(good)))
    with pytest.raises(ThemeError, match=re.escape(want)):
        load_theme(path)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("name: " + "[" * 5000 + "]" * 5000, "it is nested deeper than 100 levels"),
        ("name: &a [*a]", "*a contains itself"),
    ],
    ids=["deep", "an alias of itself"],
)
def test_a_theme_that_yaml_cannot_make_values_of_is_refused_with_the_reason(
    text: str, why: str, tmp_path: Path
) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(ThemeError, match=re.escape(f"{path}:1: cannot be read: {why}")):
        load_theme(path)


@pytest.mark.parametrize("path", sorted(THEMES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_role_can_be_read_on_the_background(path: Path) -> None:
    theme = load_theme(path)
    background = Color.parse(str(theme.background))
    if background.ansi is not None:
        pytest.skip("the terminal defines these colours")

    def contrast(colour: str) -> float:
        lighter, darker = sorted((luminance(Color.parse(colour)), luminance(background)), reverse=True)
        return (lighter + 0.05) / (darker + 0.05)

    low = {name: round(contrast(theme.variables[name]), 1) for name in COLOURS if contrast(theme.variables[name]) < 4.5}
    assert low == {}


def luminance(colour: Color) -> float:
    """Relative luminance as WCAG 2 defines it."""
    parts = [part / 255 for part in colour.rgb]
    red, green, blue = (p / 12.92 if p <= 0.04045 else float(((p + 0.055) / 1.055) ** 2.4) for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_states_have_a_glyph_each() -> None:
    assert len(set(GLYPHS.values())) == len(GLYPHS)


# The registry

CHANGING = {action.id for action in ACTIONS if action.changes}
WANTED = {
    "submit": "submit.send",
    "delete": "object.delete",
    "stop": "workload.stop",
    "resume": "workload.resume",
    "requeue": "workload.requeue",
    "change priority": "workload.priority",
    "move to another queue": "workload.move",
    "hold a queue": "queue.hold",
    "drain a queue": "queue.drain",
    "resume a queue": "queue.resume",
    "edit a quota": "queue.quota",
    "cordon": "node.cordon",
    "uncordon": "node.uncordon",
    "drain": "node.drain",
    "fail a node": "node.fail",
    "pause": "sim.pause",
    "step": "sim.step",
    "speed": "sim.speed",
}


@pytest.mark.parametrize("wanted", WANTED)
def test_the_registry_has_what_operators_do(wanted: str) -> None:
    assert WANTED[wanted] in BY_ID


def test_ids_and_aliases_are_unique() -> None:
    assert len(BY_ID) == len(ACTIONS)
    assert len(ALIASES) == sum(len(action.aliases) for action in ACTIONS)


def test_nothing_that_changes_the_cluster_is_on_a_key_that_terminals_and_fingers_send_by_mistake() -> None:
    risky = {f"ctrl+{letter}" for letter in "hjklabd"} | {"ctrl+space", "backspace", "enter"}
    assert [action.id for action in ACTIONS if (action.changes or action.dangerous) and risky & set(action.keys)] == []


def test_what_destroys_asks() -> None:
    assert {action.id for action in ACTIONS if action.dangerous} >= {
        "object.delete",
        "workload.stop",
        "workload.requeue",
        "queue.drain",
        "node.drain",
        "node.fail",
    }


def test_every_action_can_be_reached_and_is_explained() -> None:
    assert [action.id for action in ACTIONS if not action.keys and not action.aliases] == []
    assert [action.id for action in ACTIONS if not action.help.endswith(".") or not action.label] == []


def test_no_sequence_starts_with_a_key_that_cannot_wait() -> None:
    prefixes = {key.split()[0] for action in ACTIONS for key in action.keys if " " in key}
    # The menu takes the second key itself, and so does the YAML of an object.
    assert {key for action in ACTIONS for key in action.keys if key in prefixes} == {"m", "y"}


def test_keys_mean_the_first_offered_action_and_prefixes_their_continuations() -> None:
    offered = [BY_ID["workload.stop"], BY_ID["workload.priority"], BY_ID["workload.move"]]
    assert find("s", offered) is BY_ID["workload.stop"]
    assert find("m", offered) is None
    assert continuations("m", offered) == {"P": BY_ID["workload.priority"], "q": BY_ID["workload.move"]}
    assert [spell("ctrl+x"), spell("m P"), spell("enter"), spell("shift+left")] == ["ctrl+x", "m P", "⏎", "⇧←"]
    assert len(DEFAULT.single_keys) == len(set(DEFAULT.single_keys))


# The command line

LINES = {
    "an alias": (":qu", ("view.queues", None, "", "")),
    "the same without the colon": ("qu", ("view.queues", None, "", "")),
    "a namespace": (":wl research", ("view.workloads", frozenset({"research"}), "", "")),
    "namespaces and a filter": (":wl a,b /rl.*", ("view.workloads", frozenset({"a", "b"}), "rl.*", "")),
    "a filter alone": (":no /gpu", ("view.nodes", None, "gpu", "")),
    "a filter with a blank": (":no /a b", ("view.nodes", None, "a b", "")),
    "all namespaces": (":wl all", ("view.workloads", frozenset(), "", "")),
    "an argument": (":speed 1,000", ("sim.speed", None, "", "1,000")),
    "namespaces by name": (":ns a, b", ("app.namespaces", None, "", "a, b")),
    "quit": (":q", ("app.quit", None, "", "")),
}


@pytest.mark.parametrize("case", LINES)
def test_command_lines(case: str) -> None:
    text, want = LINES[case]
    line = parse_command(text)
    assert line is not None
    assert (line.action.id, line.namespaces, line.filter, line.argument) == want


@pytest.mark.parametrize(
    "alias",
    [
        *("qu", "cq", "lq", "co", "wl", "no", "gpu", "pre", "sim", "new", "hist", "ns", "q"),
        "pause",
        "step",
    ],
)
def test_the_aliases_of_k9s_fingers_work(alias: str) -> None:
    assert alias in ALIASES


REFUSED = {
    "a typing error": ("wlk", "Unknown command :wlk; did you mean :wl?"),
    "nonsense": ("zzzzzz", "Unknown command :zzzzzz; ? lists all commands"),
    "too much": ("step 3", ":step takes no argument"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_lines_that_are_no_command(case: str) -> None:
    text, want = REFUSED[case]
    with pytest.raises(CommandError, match=re.escape(want)):
        parse_command(text)


def test_an_empty_line_is_nothing() -> None:
    assert parse_command("  ") is None


def test_a_filter_that_is_no_regular_expression_says_where() -> None:
    problem = r"invalid regular expression: missing \), unterminated subpattern at column 3"
    with pytest.raises(FilterError, match=problem):
        parse_filter("ab(")


@given(st.text("ab-]^ .", min_size=1), st.text("abAB-]^ .\\"))
def test_a_fuzzy_filter_passes_the_rows_that_the_palette_would_find(letters: str, row: str) -> None:
    found = parse_filter(f"-f {letters}")
    assert found is None or found.passes(row, {}) == (Matcher(letters.replace(" ", "")).match(row) > 0)


def test_a_prompt_for_whole_numbers_says_what_is_wrong() -> None:
    check = whole_number(0, 100)
    assert [check("5"), check("1_0"), check("x"), check("101"), check("-1")] == [
        "",
        "",
        "must be a whole number",
        "must be between 0 and 100",
        "must be between 0 and 100",
    ]


# The palette


def test_the_palette_finds_by_label_and_alias_before_help() -> None:
    entries = [PaletteEntry(action) for action in ACTIONS]
    assert ranked(entries, "cordon")[0].action.id == "node.cordon"
    assert ranked(entries, "priority")[0].action.id in ("workload.priority", "table.sort-priority")
    assert ranked(entries, "qzx") == []
    assert ranked(entries, "") == entries


# The header

FOUR = EnginesInForce(
    admission=Engine("Kueue 0.19", "Kueue"),
    placement=Engine("Volcano", "Volcano"),
    capacity=Engine("Karpenter", "Karp"),
    sharing=Engine("MIG mixed", "MIG"),
)


def test_the_engines_in_force_are_named_in_full_or_in_short() -> None:
    assert [engine_words(FOUR), engine_words(FOUR, short=True)] == [
        "Kueue 0.19 · Volcano · Karpenter · MIG mixed",
        "Kueue×Volcano×Karp×MIG",
    ]
    bare = EnginesInForce(placement=Engine("KAI", "KAI"))
    assert [engine_words(bare), engine_words(bare, short=True)] == ["no queueing · KAI", "KAI"]


MODES = {
    "running": (ConsoleStatus(speed=60.0, reached=60.0), "SIM ×60"),
    "too slow": (ConsoleStatus(speed=1000.0, reached=640.04), "SIM ×1,000 → ×640"),
    "nearly": (ConsoleStatus(speed=1000.0, reached=950.0), "SIM ×1,000"),
    "paused": (ConsoleStatus(speed=60.0, paused=True), "SIM ⏸ paused"),
    "replay": (ConsoleStatus(mode=ConsoleMode.REPLAY, speed=10.0), "REPLAY ×10"),
    "live": (ConsoleStatus(mode=ConsoleMode.LIVE), "LIVE"),
}


@pytest.mark.parametrize("case", MODES)
def test_the_mode(case: str) -> None:
    status, want = MODES[case]
    assert mode(status) == want


FULL = ConsoleStatus(
    speed=60.0,
    source="default",
    engines=KUEUE,
    policy="fair sharing off",
    nodes_synthesised=True,
    time=1_767_604_460_000_000,
    age=0.4,
)
HEADERS = {
    "everything": (
        FULL,
        110,
        " SIM ×60  default · all namespaces · Kueue 0.19 · fair sharing off · nodes: synthesised",
    ),
    "less": (FULL, 60, " SIM ×60  default · Kueue 0.19 · fair sharing off"),
    "little": (FULL, 24, " SIM ×60  default"),
}


@pytest.mark.parametrize("case", HEADERS)
def test_a_narrow_header_leaves_out_what_matters_least(case: str) -> None:
    status, width, want = HEADERS[case]
    assert plain(fit_parts(left_parts(status, ()), width)) == want


def test_the_header_says_what_is_wrong() -> None:
    troubled = ConsoleStatus(
        read_only=True, stalled="a tick takes 9 s", history="disk full", worker="died", source="x", engines=KUEUE
    )
    text = plain(fit_parts(left_parts(troubled, {"b", "a"}), 200))
    assert text == " SIM   RO  ·  NO HISTORY  · ⚠ stalled: a tick takes 9 s · x · a, b · Kueue 0.19 · ⚠ worker: died"
    assert [plain(right_part(ConsoleStatus(loading=True))), plain(right_part(FULL))] == [
        "loading…",
        "Mon 5 Jan 09:14:20 · 0.4s old ",
    ]


def test_stale_data_say_so_in_the_fault_colour_unless_paused() -> None:
    old = ConsoleStatus(time=FULL.time, age=42.0)
    paused = ConsoleStatus(time=FULL.time, age=42.0, paused=True)
    assert right_part(old)[1] == (" · 42s old ", "fault")
    assert right_part(paused)[1] == (" · 42s old ", "dim")


def test_every_view_has_a_key_and_a_screen() -> None:
    views = [action for action in ACTIONS if action.scope is Scope.VIEWS]
    assert [action.keys[-1] for action in views] == [*"123456789", "alt+0"]
    assert [action.id.removeprefix("view.") for action in views] == list(VIEWS)


def test_travel_goes_back_forward_and_to_the_last_view() -> None:
    travel = ViewHistory("dashboard")
    assert (travel.step(-1), travel.last) == (None, None)
    for view in ("queues", "queues", "nodes"):
        travel.go(view)
    assert [travel.last, travel.step(-1), travel.step(-1), travel.step(-1)] == ["queues", "queues", "dashboard", None]
    assert travel.step(1) == "queues"
    travel.go("history")
    assert (travel.here, travel.step(1), travel.last) == ("history", None, "queues"), "what was ahead is forgotten"


def test_the_menu_gives_each_action_a_key_and_a_refused_one_its_reason() -> None:
    offered = [BY_ID[id] for id in ("object.open", "object.describe", "object.yaml", "queue.drain", "queue.hold")]
    options = menu(offered, lambda action: "it is held" if action.id == "queue.hold" else "")
    assert [(option.id, option.key, option.refused) for option in options] == [
        ("object.describe", "d", ""),
        ("object.yaml", "y", ""),
        ("queue.drain", "h", ""),
        ("queue.hold", "s", "it is held"),
    ]


RANGE = "must be between 1 and 10,000"
SPEEDS = [("60", ""), ("×1,000", ""), ("0", RANGE), ("nan", RANGE), ("fast", "enter a number")]


@pytest.mark.parametrize(("text", "wrong"), SPEEDS)
def test_speeds_are_checked(text: str, wrong: str) -> None:
    assert wrong_speed(text) == wrong


@pytest.mark.parametrize("left", ["abcdef", "abcdefgh", "abcdefghijkl"])
def test_the_two_sides_of_a_line_never_touch(left: str) -> None:
    text = line(left, "right", 12, Style(), lambda role: Style()).text
    assert len(text) == 12
    assert text.endswith(" right")
