"""The keymap: presets, bindings of the user, what is wrong with them, and that footer, help and palette follow."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuconsole.cli.keys import read_keymap
from gpuconsole.config import load
from gpuconsole.errors import ConfigError
from gpuconsole.ui.actions import ACTIONS, BY_ID, Scope
from gpuconsole.ui.actions.keymap import DEFAULT, PRESETS, build_keymap, find_conflicts, parse_keys
from gpuconsole.ui.actions.keys import continuations
from gpuconsole.ui.app import ConsoleApp, Preferences
from gpuconsole.ui.screens.help import HelpScreen
from gpuconsole.ui.screens.workloads import WorkloadDetailScreen
from gpuconsole.ui.widgets.dialogs import MOVES, ChoiceDialog
from gpuconsole.ui.widgets.grid import Grid
from tests.support.console_clusters import busy_org
from tests.support.console_stage import Stage, staged

KEYS = {
    "j": ("j",),
    "G, end": ("G", "end"),
    "g g, ctrl+g": ("g g", "ctrl+g"),
    "shift+g": ("G",),
    "comma": (",",),
    "Escape , ctrl+X ctrl+S": ("escape", "ctrl+x ctrl+s"),
    "f5,alt+v,ctrl+left,shift+tab": ("f5", "alt+v", "ctrl+left", "shift+tab"),
    "": (),
    " ": (),
}
WRONG = {
    "a b c": "a chord has at most two keys",
    "ctrl": "'ctrl' is not a key",
    "control+x": "'control+x' is not a key",
    "pgdn": "'pgdn' is not a key",
    "ctrl+c": "this key quits when pressed twice",
    "ctrl+x ctrl+q": "this key goes back or quits",
    "\x1b": "is not a key",
}


@pytest.mark.parametrize("text", KEYS)
def test_keys_are_read_as_the_registry_writes_them(text: str) -> None:
    assert parse_keys(text) == KEYS[text]


@pytest.mark.parametrize("text", WRONG)
def test_a_text_that_is_no_key_is_refused_with_the_reason(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(WRONG[text])):
        parse_keys(text)


@given(st.text(max_size=12))
def test_any_text_is_read_or_refused_and_what_is_read_reads_the_same_again(text: str) -> None:
    try:
        keys = parse_keys(text)
    except ValueError:
        return
    assert parse_keys(", ".join("comma" if key == "," else key for key in keys)) == keys


def test_the_registrys_own_keys_can_all_be_written() -> None:
    written = {key: parse_keys(key) for action in ACTIONS for key in action.keys}
    assert {key: read for key, read in written.items() if read != (key,)} == {}


def test_bindings_replace_the_keys_of_an_action_and_nothing_else() -> None:
    bindings = {"table.top": "g g, ctrl+home", "object.describe": "", "workload.move": "f11"}
    keymap, problems = build_keymap("default", bindings)
    assert problems == []
    before = {action.id: action.keys for action in ACTIONS}
    assert {one.id: one.keys for one in keymap.actions if one.keys != before[one.id]} == {
        "table.top": ("g g", "ctrl+home"),
        "object.describe": (),
        "workload.move": ("f11",),
    }


CONFLICTS = {
    "a key of a global action": ({"workload.move": "z"}, "'z' conflicts with 'z' of app.zoom (zoom)"),
    "of the same kind of object": ({"workload.move": "D"}, "'D' conflicts with 'D' of workload.duplicate (duplicate)"),
    "a chord that begins with a key": ({"app.header": "g h"}, "'g h' conflicts with 'g' of table.top (top)"),
    "a key that begins chords": ({"app.header": "y"}, "'y' conflicts with 'y' of object.yaml (yaml)"),
    "two bindings": (
        {"app.header": "f11", "app.refresh": "f11"},
        "'f11' conflicts with 'f11' of app.refresh (refresh)",
    ),
}


@pytest.mark.parametrize("case", CONFLICTS)
def test_a_conflict_names_both_actions(case: str) -> None:
    bindings, want = CONFLICTS[case]
    _, problems = build_keymap("default", bindings)
    id = next(iter(bindings))
    assert [one.problem for one in problems if one.id == id] == [f'{want}; bind that to another key, or to "" for none']


def test_kinds_of_objects_may_share_a_key_and_the_menu_takes_second_keys() -> None:
    assert build_keymap("default", {"node.taint": "D", "workload.move": "m z"})[1] == []
    assert build_keymap("default", {"workload.move": "z", "app.zoom": ""})[1] == []


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_have_no_conflicts_and_leave_every_action_reachable(preset: str) -> None:
    keymap, problems = build_keymap(preset, {})
    assert problems == []
    assert find_conflicts(keymap, PRESETS[preset]) == []
    assert [action.id for action in keymap.actions if not action.keys and BY_ID[action.id].keys] == []


def test_no_ctrl_letter_changes_anything_in_vim() -> None:
    keymap, _ = build_keymap("vim", {})
    changing = [action for action in keymap.actions if action.changes or action.dangerous]
    assert [action.id for action in changing if re.search(r"ctrl\+[a-z]\b", " ".join(action.keys))] == []
    assert changing != []


def test_wrong_bindings_are_reported_with_file_and_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "config.yaml"
    file.write_text('keys:\n  preset: vim\n  bindings:\n    table.tpo: x\n    app.zoom: z\n    app.header: "x y z"\n')
    monkeypatch.setenv("GPUCONSOLE_CONFIG", str(file))
    with pytest.raises(ConfigError) as caught:
        read_keymap(load({}, {"GPUCONSOLE_CONFIG": str(file)}))
    assert str(caught.value).splitlines() == [
        f"{file}:4: table.tpo: unknown action; did you mean table.top?",
        f"{file}:6: app.header: 'x y z': a chord has at most two keys; separate keys that do the same by a comma",
    ]
    file.write_text("keys: {bindings: {workload.move: z}}\n")
    with pytest.raises(ConfigError, match=re.escape(f"{file}:1: workload.move: 'z' conflicts with 'z' of app.zoom")):
        read_keymap(load({}, {"GPUCONSOLE_CONFIG": str(file)}))


def test_the_default_keymap_is_the_registry() -> None:
    assert DEFAULT.actions == ACTIONS
    assert read_keymap(load({}, {"GPUCONSOLE_KEYS__PRESET": "default"})).actions == ACTIONS


async def test_rebound_keys_and_chords_work_and_footer_help_and_palette_show_them() -> None:
    bindings = {"table.bottom": "g e, f11", "table.top": "g g", "object.open": "ctrl+l, enter", "view.cost": "comma"}
    keymap, problems = build_keymap("default", {**bindings, "object.describe": ""})
    assert problems == []
    app = ConsoleApp(busy_org(), repaint=0, preferences=Preferences(keymap=keymap))
    async with app.run_test(size=(120, 36)) as pilot:
        stage = Stage(app, pilot)
        await stage.settle()
        await stage.press("3")
        grid = app.screen.query_one(Grid)
        assert len(grid.rows) > 2
        assert "ctrl+l open" in stage.lines[-1]
        assert "describe" not in stage.lines[-1]

        await stage.press("f11")
        assert grid.cursor == len(grid.rows) - 1
        await stage.press("g")
        popup = stage.screen(ChoiceDialog)
        assert [line.strip("│▌ ").split()[:2] for line in stage.lines if "Move to the" in line] == [
            ["g", "top"],
            ["e", "bottom"],
        ]
        assert popup.is_active
        await stage.press("g")
        assert grid.cursor == 0
        # A chord that is complete does not begin another one.
        await stage.press("g")
        stage.screen(ChoiceDialog)
        await stage.press("e")
        assert grid.cursor == len(grid.rows) - 1

        await stage.press("d")
        assert stage.line("WORKLOAD") != ""
        await stage.press("ctrl+l")
        stage.screen(WorkloadDetailScreen)
        await stage.press("escape", "question_mark")
        stage.screen(HelpScreen)
        assert "g e  f11" in stage.text
        await stage.press("escape", "ctrl+p")
        await stage.write("bottom")
        assert "g e  f11" in stage.text
        await stage.press("escape", "comma")
        assert app.view == "cost"
        assert ", cost" in stage.lines[1]


async def test_emacs_moves_and_deletes_with_its_keys() -> None:
    keymap, _ = build_keymap("emacs", {})
    app = ConsoleApp(busy_org(), repaint=0, preferences=Preferences(keymap=keymap))
    async with app.run_test(size=(120, 36)) as pilot:
        stage = Stage(app, pilot)
        await stage.settle()
        await stage.press("3", "ctrl+n", "ctrl+n", "ctrl+p")
        assert app.screen.query_one(Grid).cursor == 1
        await stage.press("ctrl+x")
        assert [line.strip("│▌ ").split()[0] for line in stage.lines if re.search(r"next pane|zoom|delete", line)] == [
            "o",
            "1",
            "k",
        ]
        await stage.press("escape", "alt+x")
        assert "Search actions" in stage.text


SHARED = {
    "left": ("the open time line takes the arrows; the others fold or move left", "time queue node topology chart"),
    "right": ("the open time line takes the arrows; the others unfold or move right", "time queue node topology chart"),
    "shift+left": ("the open time line takes the arrows", "time table"),
    "shift+right": ("the open time line takes the arrows", "time table"),
    "escape": ("back, also from an earlier time", "time app"),
    ".": ("pause or resume what moves: the recording, the simulation, a log", "time sim logs"),
    "-": ("a screen with a time window shortens it, as + lengthens it", "app window"),
    "enter": ("go on with what is in front: open, run, next step", "object whatif drill"),
    "o": ("a list of drills has no owners", "object drill"),
    "s": ("stop or resume", "workload queue forward"),
    "m r": ("resume", "workload queue"),
    "e": ("edit: the quota, the manifest, the manifest again", "queue object edit"),
    "R": ("a drill has no bars whose resource could be chosen", "queue drill"),
    "h": ("left, as in vim; the what-if has nothing to fold", "queue node topology whatif"),
    "l": ("right, as in vim; rows that unfold have no logs", "queue node topology object"),
    "B": ("by what to colour or to group", "node cost chart"),
    "a": ("add to the list: a change, a victim", "whatif drill"),
    "b": ("the what-if compares its two lists; the ledger is at :ledger", "whatif answer"),
    "p": ("a what-if has no logs", "whatif object logs"),
    "ctrl+s": ("send the form or the edited text", "submit edit"),
    "ctrl+t": ("the form of a job shows the present only", "submit time"),
}
"""Key that several actions have → why that does not hurt, and the groups of the actions."""


def test_a_key_has_one_meaning_but_for_a_short_list_with_reasons() -> None:
    groups: dict[str, dict[str, None]] = {}
    for action in ACTIONS:
        for key in action.keys:
            groups.setdefault(key, {})[action.id.partition(".")[0]] = None
    known = {key: set(names.split()) for key, (_, names) in SHARED.items()}
    several = {key: set(names) for key, names in groups.items() if len(names) > 1}
    assert {key: names for key, names in several.items() if not names <= known.get(key, set())} == {}
    assert set(several) == set(known)


def test_no_group_of_actions_gives_a_key_two_meanings() -> None:
    owners: dict[tuple[str, str], list[str]] = {}
    for action in ACTIONS:
        for key in action.keys:
            owners.setdefault((action.id.partition(".")[0], key), []).append(action.id)
    assert {place: ids for place, ids in owners.items() if len(ids) > 1} == {}


KINDS = {"workloads": Scope.WORKLOAD, "queues": Scope.QUEUE, "nodes": Scope.NODE}


@pytest.mark.parametrize("kind", KINDS)
def test_a_letter_means_in_the_menu_what_it_means_outside(kind: str) -> None:
    actions = [action for action in ACTIONS if action.scope in (Scope.OBJECT, KINDS[kind]) and action.id not in MOVES]
    outside = {key: action.id for action in actions for key in action.keys if len(key) == 1}
    inside = {key: action.id for key, action in continuations("m", actions).items()}
    both = {key: (outside[key], id) for key, id in inside.items() if key in outside}
    # Both edit; the menu has the manifest, which has no key of its own there.
    both.pop("e", None)
    assert both == {}


async def test_describe_is_d_in_every_menu() -> None:
    async with staged(busy_org()) as stage:
        for view in "234":
            await stage.press(view, "m")
            assert stage.line(" describe ").strip("│▌ ").split()[0] == "d"
            await stage.press("escape")
