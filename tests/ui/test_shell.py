"""The shell: keys do what the registry says on every screen, the way back leads back, and nothing breaks it."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from textual import events
from textual.color import Color
from textual.pilot import Pilot
from textual.widgets import Button, Input

from gpuconsole.model.clock import SECOND
from gpuconsole.model.cluster import Namespace, Node, Pod
from gpuconsole.model.commands import Command, Delete, SetQuota, SetStopPolicy
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.objects import Object
from gpuconsole.model.queues import ClusterQueue, Cohort, LocalQueue, StopPolicy
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload
from gpuconsole.services.console import Console
from gpuconsole.ui.actions import ACTIONS, BY_ID, Scope
from gpuconsole.ui.actions.global_actions import TIME_TRAVEL
from gpuconsole.ui.actions.keymap import DEFAULT
from gpuconsole.ui.app import ConsoleApp
from gpuconsole.ui.screens.base import ConsoleScreen
from gpuconsole.ui.screens.dashboard import DashboardScreen
from gpuconsole.ui.screens.help import HelpScreen
from gpuconsole.ui.screens.queues import QueuesScreen
from gpuconsole.ui.screens.views import VIEWS
from gpuconsole.ui.widgets.command_line import CommandLine, FilterLine
from gpuconsole.ui.widgets.dialogs import ChoiceDialog, Confirm, Palette, Prompt
from gpuconsole.ui.widgets.grid import Grid
from tests.support.console_clusters import HOSTILE, NOW, history, org_cohort, recorded, simulated
from tests.support.console_stage import staged
from tests.support.recorded_backend import RecordedBackend

SIZES = [(80, 24), (120, 36)]


class OpenConsole(Console):
    """A recording that notes commands instead of refusing them."""

    sent: list[Command]

    def submit(self, command: Command) -> None:
        self.sent.append(command)


def console_of(objects: list[Object] | None = None) -> OpenConsole:
    console = recorded(org_cohort() if objects is None else objects, history())
    console.__class__ = OpenConsole
    assert isinstance(console, OpenConsole)
    console.sent = []
    return console


@asynccontextmanager
async def shown(
    console: Console | None = None, size: tuple[int, int] = (120, 36)
) -> AsyncIterator[tuple[ConsoleApp, Pilot[None]]]:
    app = ConsoleApp(console or console_of(), repaint=0)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        yield app, pilot


async def press(pilot: Pilot[None], *keys: str) -> None:
    for key in keys:
        await pilot.press(key)
        await pilot.pause()


def painted(app: ConsoleApp) -> list[str]:
    """What stands on the screen, line by line."""
    return ["".join(s.text for s in strip) for strip in app.screen._compositor.render_strips(app.size)]


def said(app: ConsoleApp) -> str:
    """What was said in passing."""
    return "\n".join(notification.message for notification in app._notifications)


def front(app: ConsoleApp) -> ConsoleScreen:
    screen = app.front
    assert screen is not None
    return screen


# Keys


@pytest.mark.parametrize(("view", "size"), zip(VIEWS, SIZES * len(VIEWS), strict=False), ids=str)
async def test_every_key_of_the_registry_can_be_pressed_on_every_screen(
    view: str, size: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    async with shown(size=size) as (app, pilot):
        app.go(view)
        await pilot.pause()
        for key in DEFAULT.single_keys:
            if key in BY_ID["app.suspend"].keys:
                continue
            await pilot.press(key)
            if not isinstance(app.screen, ConsoleScreen):
                await pilot.press("escape")
            if app.view != view or len(app.screen_stack) > 1:
                app.go(view)
                await pilot.pause()
        assert app.is_running
        assert app.view == view
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.parametrize("view", list(VIEWS))
async def test_no_key_means_two_things_on_one_screen(view: str) -> None:
    async with shown() as (app, pilot):
        app.go(view)
        await pilot.pause()
        keys: dict[str, list[str]] = {}
        for action in front(app).actions.offered():
            for key in action.keys:
                keys.setdefault(key, []).append(action.id)
        assert {key: ids for key, ids in keys.items() if len(ids) > 1} == {}


async def test_every_action_of_the_registry_is_offered_somewhere() -> None:
    # Screens of these open on live clusters only: test_live_actions has them.
    # A window of time needs a recorded history: test_trends has one.
    scopes = (Scope.EDIT, Scope.LOGS, Scope.FORWARDS, Scope.WINDOW)
    # The time line needs one, too: test_time_travel has it.
    elsewhere = {action.id for action in ACTIONS if action.scope in scopes} | {action.id for action in TIME_TRAVEL}
    # Needs alerts: test_alerts_screen has them.
    elsewhere |= {"alert.silence"}
    # On charts: test_plots has them.
    elsewhere |= {"chart.earlier", "chart.later", "chart.series"}
    async with shown() as (app, pilot):
        offered: set[str] = set()
        for view in VIEWS:
            app.go(view)
            await pilot.pause()
            offered |= {action.id for action in front(app).actions.offered()}
        app.go("workloads")
        await press(pilot, "enter")
        offered |= {action.id for action in front(app).actions.offered()}
        await press(pilot, "escape", "T")
        await app.workers.wait_for_complete()
        await pilot.pause()
        offered |= {action.id for action in front(app).actions.offered()}
        await press(pilot, "enter")
        await app.workers.wait_for_complete()
        await pilot.pause()
        offered |= {action.id for action in front(app).actions.offered()}
    assert set(BY_ID) - offered == elsewhere


async def test_every_action_that_runs_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="gpuconsole.ui.actions")
    async with shown() as (_app, pilot):
        await press(pilot, "2", "tab", "j", "full_stop", "full_stop", "r")
    said = [record.getMessage() for record in caplog.records if record.name == "gpuconsole.ui.actions"]
    then = [f"action {id} in queues" for id in ("app.next-pane", "table.down", "sim.pause", "sim.pause")]
    assert said == ["action view.queues in dashboard", *then]


async def test_what_the_palette_offers_is_what_the_screen_offers() -> None:
    async with shown() as (app, pilot):
        await press(pilot, "2", "ctrl+p")
        assert isinstance(app.screen, Palette)
        ids = {row.action.id for row in app.screen.query_one(Grid).rows}
        assert ids == {action.id for action in front(app).actions.offered()} - {"app.palette"}
        assert "queue.quota" in ids
        await press(pilot, *"dash", "enter")
        assert isinstance(app.screen, DashboardScreen)


async def test_help_lists_the_keys_of_the_screen_below_and_does_what_is_picked() -> None:
    async with shown() as (app, pilot):
        await press(pilot, "2", "question_mark")
        assert isinstance(app.screen, HelpScreen)
        listed = {row.action.id for row in app.screen.query_one(Grid).rows}
        assert {"queue.hold", "queue.unfold", "app.help"} <= listed
        assert app.screen.query_one(Grid).move_to_key("view.dashboard")
        await press(pilot, "enter")
        assert app.view == "dashboard"


async def test_f1_helps_even_while_typing() -> None:
    async with shown() as (app, pilot):
        await press(pilot, "slash", "a", "f1")
        assert isinstance(app.screen, HelpScreen)


# Ways


async def test_views_history_and_the_way_back() -> None:
    async with shown() as (app, pilot):
        await press(pilot, "2", "4")
        assert app.view == "nodes"
        await press(pilot, "left_square_bracket")
        assert app.view == "queues"
        await press(pilot, "left_square_bracket")
        assert app.view == "dashboard"
        await press(pilot, "right_square_bracket", "right_square_bracket")
        assert app.view == "nodes"
        await press(pilot, "minus")
        assert app.view == "queues"


async def test_escape_comes_back_to_the_same_row() -> None:
    async with shown() as (app, pilot):
        await press(pilot, "2", "j", "j", "d")
        assert not isinstance(app.screen, QueuesScreen)
        await press(pilot, "escape")
        assert isinstance(app.screen, QueuesScreen)
        assert app.screen.query_one("#queues", Grid).cursor == 2
        await press(pilot, "1", "2")
        assert app.screen.query_one("#queues", Grid).cursor == 2


async def test_escape_clears_the_filter_before_it_goes_back() -> None:
    async with shown() as (app, pilot):
        await press(pilot, "2", "slash", *"prod", "enter")
        grid = app.screen.query_one("#queues", Grid)
        assert [row.node.name for row in grid.rows] == ["cq-prod", "prod/lq-prod"]
        assert app.focused is grid
        assert app.screen.query_one(FilterLine).display
        await press(pilot, "escape")
        assert len(grid.rows) == 5
        assert not app.screen.query_one(FilterLine).display


@pytest.mark.parametrize(("opens", "line"), [("/", FilterLine), (":", CommandLine)], ids=["filter", "command"])
async def test_letters_typed_faster_than_the_screen_draws_are_kept(
    opens: str, line: type[FilterLine | CommandLine]
) -> None:
    async with shown() as (app, pilot):
        await press(pilot, "2")
        for letter in f"{opens}prod":
            app.post_message(events.Key({"/": "slash", ":": "colon"}.get(letter, letter), letter))
        await pilot.pause()
        assert app.screen.query_one(line).query_one(Input).value == "prod"


async def test_letters_typed_before_the_palette_is_drawn_are_kept() -> None:
    async with shown() as (app, pilot):
        app.post_message(events.Key("ctrl+p", None))
        for letter in "quota":
            app.post_message(events.Key(letter, letter))
        await pilot.pause()
        assert app.screen.query_one(Input).value == "quota"


async def test_a_spoilt_filter_says_what_is_wrong_and_keeps_the_rows() -> None:
    async with shown() as (app, pilot):
        await press(pilot, "2", "slash", "left_parenthesis")
        assert "invalid regular expression" in "\n".join(painted(app))
        assert len(app.screen.query_one("#queues", Grid).rows) == 5


async def test_q_at_the_root_asks_and_enter_alone_stays() -> None:
    async with shown() as (app, pilot):
        await press(pilot, "q")
        assert isinstance(app.screen, Confirm)
        await press(pilot, "enter")
        assert isinstance(app.screen, DashboardScreen)
        assert app.is_running
        await press(pilot, "q", "right", "enter")
    assert app.return_code == 0


@pytest.mark.parametrize("keys", [("ctrl+c", "ctrl+c"), ("colon", "q", "enter")], ids=["ctrl+c twice", ":q"])
async def test_quitting_at_once(keys: tuple[str, ...]) -> None:
    async with shown() as (app, pilot):
        for key in keys:
            await pilot.press(key)
    assert app.return_code == 0


# The command line


async def test_a_line_opens_a_screen_with_namespaces_and_a_filter() -> None:
    async with shown() as (app, pilot):
        await press(pilot, "colon", *"qu research /lq", "enter")
        await pilot.pause()
        assert app.view == "queues"
        assert app.namespaces == {"research"}
        grid = app.screen.query_one("#queues", Grid)
        assert [row.node.name for row in grid.rows] == ["research/lq-research"]
        assert "research" in painted(app)[0]
        await press(pilot, "0")
        assert app.namespaces == frozenset()
        assert [row.node.name for row in grid.rows] == ["prod/lq-prod", "research/lq-research"]


async def test_a_line_that_is_no_command_is_said_to_be_none() -> None:
    async with shown() as (app, pilot):
        await press(pilot, "colon", *"wlk", "enter")
        assert "did you mean :wl" in said(app)
        assert not app.screen.query_one(CommandLine).display
        assert app.focused is not None


async def test_escape_leaves_the_command_line() -> None:
    async with shown() as (app, pilot):
        await press(pilot, "colon", *"qu", "escape")
        assert app.view == "dashboard"
        assert not isinstance(app.focused, Input)


# Time


async def test_pause_step_and_speed_drive_the_console() -> None:
    console = console_of()
    async with shown(console) as (app, pilot):
        await press(pilot, "full_stop")
        assert console.status.paused
        assert "paused" in painted(app)[0]
        await press(pilot, "full_stop")
        assert not console.status.paused
        await press(pilot, "less_than_sign")
        assert console.status.speed == 10
        await press(pilot, "greater_than_sign", "greater_than_sign")
        assert console.status.speed == 300
        await press(pilot, "colon", *"speed 60", "enter")
        assert console.status.speed == 60
        await press(pilot, "equals_sign")
        assert isinstance(app.screen, Prompt)
        await press(pilot, "backspace", "backspace", *"99999", "enter")
        assert isinstance(app.screen, Prompt), "what is wrong is not taken"
        await press(pilot, "escape")
        assert console.status.speed == 60


async def test_a_new_snapshot_reaches_the_screen_in_front_only() -> None:
    console = recorded(org_cohort())
    async with shown(console) as (app, pilot):
        first = front(app)
        await press(pilot, "2")
        before = first.snapshot
        console.tick(1.0)
        await pilot.pause()
        assert front(app).snapshot is console.snapshot
        assert first.snapshot is before
        await press(pilot, "1")
        assert first.snapshot is console.snapshot


# Actions


async def test_holding_a_queue_asks_and_enter_alone_does_nothing() -> None:
    console = console_of()
    async with shown(console) as (app, pilot):
        for key, name in (("j", "ClusterQueue cq-prod"), ("j", "LocalQueue prod/lq-prod")):
            await press(pilot, "2", key, "s")
            assert isinstance(app.screen, Confirm)
            assert app.focused is app.screen.query_one("#no", Button)
            assert f"Hold {name}?" in "\n".join(painted(app))
            await press(pilot, "enter")
        assert console.sent == []
        await press(pilot, "s", "tab", "enter", "k", "s", "tab", "enter")
        assert console.sent == [
            SetStopPolicy("prod/lq-prod", StopPolicy.HOLD),
            SetStopPolicy("cq-prod", StopPolicy.HOLD),
        ]


async def test_a_held_queue_is_resumed_without_a_question() -> None:
    async with staged(simulated(org_cohort())) as stage:
        policies = []
        for keys in (("2", "j", "s", "tab", "enter"), ("s",)):
            await stage.press(*keys)
            await stage.tick()
            policies.append(stage.app.cluster.snapshot.cluster_queues["cq-prod"].stop_policy)
        assert policies == [StopPolicy.HOLD, StopPolicy.NONE]


async def test_draining_a_queue_asks_and_enter_alone_does_nothing() -> None:
    console = console_of()
    async with shown(console) as (app, pilot):
        await press(pilot, "2", "j", "m", "h")
        assert isinstance(app.screen, Confirm)
        assert app.focused is app.screen.query_one("#no", Button)
        assert "evicts workloads with quota (1 running, 0 reserved or admitted)" in "\n".join(painted(app))
        await press(pilot, "enter")
        assert console.sent == []
        await press(pilot, "m", "h", "right", "enter")
        assert console.sent == [SetStopPolicy("cq-prod", StopPolicy.HOLD_AND_DRAIN)]


async def test_deleting_needs_the_name_in_the_title() -> None:
    console = console_of()
    async with shown(console) as (app, pilot):
        await press(pilot, "2", "j", "ctrl+x", "enter", "tab", "tab", "enter")
        assert console.sent == []
        while not isinstance(app.screen, ConsoleScreen):
            await press(pilot, "escape")
        await press(pilot, "ctrl+x", *"delete", "enter")
        assert console.sent == []
        while not isinstance(app.screen, ConsoleScreen):
            await press(pilot, "escape")
        await press(pilot, "ctrl+x", *"cq-prod", "enter")
        assert console.sent == [Delete("cluster_queues", "cq-prod")]


async def test_a_dialog_is_answered_once_however_fast_its_keys_come() -> None:
    console = console_of()
    async with shown(console) as (app, pilot):
        await press(pilot, "2", "j", "m", "h")
        dialog = app.screen
        assert isinstance(dialog, Confirm)
        for _ in range(2):
            dialog.post_message(events.Key("escape", None))
        await pilot.pause()
        assert isinstance(app.screen, QueuesScreen)


async def test_a_cohort_says_why_it_cannot_be_held() -> None:
    console = console_of()
    async with shown(console) as (app, pilot):
        await press(pilot, "2", "s")
        assert console.sent == []
        assert "a cohort cannot be held" in said(app)


async def test_editing_a_quota_shows_what_would_change_and_leaves_the_limits_out() -> None:
    console = console_of()
    async with shown(console) as (app, pilot):
        await press(pilot, "2", "j", "e")
        assert isinstance(app.screen, ChoiceDialog)
        await press(pilot, "enter")
        assert isinstance(app.screen, Prompt)
        await press(pilot, "backspace", "backspace", *"1.x", "enter")
        assert "is not a quantity" in "\n".join(painted(app))
        await press(pilot, "backspace", "backspace", "2")
        assert "16 → 12" in "\n".join(painted(app))
        await press(pilot, "enter")
        assert console.sent == [SetQuota("cq-prod", "a100-80gb", "nvidia.com/gpu", nominal=12)]


async def test_a_limit_can_be_taken_away() -> None:
    console = console_of()
    async with shown(console) as (app, pilot):
        await press(pilot, "2", "j", "e", "j", "enter", "backspace", *"none")
        assert "0 → ∞" in "\n".join(painted(app))
        await press(pilot, "enter")
        assert console.sent == [SetQuota("cq-prod", "a100-80gb", "nvidia.com/gpu", nominal=16, borrowing_limit=None)]


async def test_a_read_only_session_refuses_changes_with_the_reason() -> None:
    console = recorded(org_cohort(), history())
    console._guard.read_only = True
    async with shown(console) as (app, pilot):
        await press(pilot, "2", "j", "s")
        assert "read-only" in said(app)
        assert " RO " in painted(app)[0]


# Screens


async def test_the_tree_folds_and_unfolds_down_to_flavors() -> None:
    async with shown() as (app, pilot):
        await press(pilot, "2")
        grid = app.screen.query_one("#queues", Grid)
        names = [(row.depth, row.node.name) for row in grid.rows]
        assert names == [
            (0, "org-cohort"),
            (1, "cq-prod"),
            (2, "prod/lq-prod"),
            (1, "cq-research"),
            (2, "research/lq-research"),
        ]
        await press(pilot, "j", "right")
        assert [row.use.flavor for row in grid.rows if row.flavor] == ["a100-80gb"]
        await press(pilot, "left")
        assert [row.node.name for row in grid.rows] == ["org-cohort", "cq-prod", "cq-research", "research/lq-research"]
        await press(pilot, "left")
        assert grid.cursor == 0, "a folded row leads to its parent"


async def test_bars_in_the_tree_show_what_is_lent_and_borrowed() -> None:
    async with shown() as (app, pilot):
        await press(pilot, "2")
        lines = painted(app)
        (prod,) = [line for line in lines if "cq-prod" in line]
        (research,) = [line for line in lines if "cq-research" in line]
    assert "8 / 16 ███████████░░░░░▼▼▼▼▼│" in prod
    assert "12 / 8 ███████████│▓▓▓▓▓·····" in research


@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_the_dashboard_says_what_matters_at_every_size(size: tuple[int, int]) -> None:
    async with shown(size=size) as (app, _pilot):
        text = "\n".join(painted(app))
    for wanted in (
        "20 of 24 in use",
        "4 idle",
        "1 workload, 6 GPUs",
        "oldest research/rlhf-2",
        "preempted",
        "cq-research",
        "research/rlhf runs on 4 borrowed GPUs; cq-prod",
    ):
        assert wanted in text


async def test_the_dashboards_panes_lead_to_what_they_sum_up() -> None:
    async with shown() as (app, pilot):
        await press(pilot, "j", "enter")
        assert app.view == "queues"
        assert app.screen.query_one("#queues", Grid).current.node.name == "cq-prod"  # type: ignore[union-attr]


async def test_an_empty_cluster_is_said_to_be_empty_and_a_late_one_to_be_loading() -> None:
    async with shown(recorded([Namespace(name="only")])) as (app, pilot):
        await press(pilot, "2")
        assert "No ClusterQueues or Cohorts in this cluster" in "\n".join(painted(app))
    silent = Console(RecordedBackend([]))
    async with shown(silent) as (app, pilot):
        await press(pilot, "2")
        text = "\n".join(painted(app))
        assert "… Loading" in text
        assert "loading…" in text


async def test_what_the_cluster_refuses_is_said_once() -> None:
    refused = HistoryEvent(time=NOW + SECOND, what=HistoryEventKind.COMMAND_REFUSED, message="queue cq-x is unknown")
    console = recorded([*org_cohort()], [*history(), refused])
    async with shown(console) as (app, pilot):
        for _ in range(3):
            console.tick(1.0)
            await pilot.pause()
        assert said(app).count("Refused: queue cq-x is unknown") == 1


async def test_what_is_so_already_is_said_to_be_so() -> None:
    needless = HistoryEvent(time=NOW + SECOND, what=HistoryEventKind.COMMAND_NEEDLESS, message="node n1 is up already")
    console = recorded([*org_cohort()], [*history(), needless])
    async with shown(console) as (app, pilot):
        console.tick(1.0)
        await pilot.pause()
        assert said(app).count("No change: node n1 is up already") == 1


async def test_history_tells_the_newest_first_and_leads_to_the_workload() -> None:
    async with shown() as (app, pilot):
        await press(pilot, "alt+0")
        grid = app.screen.query_one(Grid)
        assert [row.line.what for row in grid.rows] == [row.what for row in reversed(history())]
        assert "✖ preempted" in "\n".join(painted(app))
        await press(pilot, "exclamation_mark")
        assert {row.line.what for row in grid.rows} == {HistoryEventKind.PREEMPTED}
        await press(pilot, "exclamation_mark", "enter")
        assert app.view == "workloads"
        assert front(app).grid.current.key == "research/rlhf-2"  # type: ignore[union-attr]


class Spoilt(QueuesScreen):
    """A screen with a bug."""

    def show(self, snapshot: Snapshot) -> None:
        raise KeyError("no such thing")


async def test_a_screen_that_fails_says_so_and_leaves_the_others_usable(caplog: pytest.LogCaptureFixture) -> None:
    async with shown() as (app, pilot):
        await app.push_screen(Spoilt())
        await pilot.pause()
        assert "✖ Failed: KeyError: 'no such thing'" in "\n".join(painted(app))
        await press(pilot, "1")
        assert "20 of 24 in use" in "\n".join(painted(app))
    assert [record.levelname for record in caplog.records if record.exc_info] == ["ERROR"]


def hostile_world() -> list[Object]:
    """The small world with every name and message replaced by something hostile."""
    objects: list[Object] = list(org_cohort())
    for number, text in enumerate(HOSTILE):
        cohort, queue = f"{text}-cohort-{number}", f"{text}-cq-{number}"
        objects += [
            Namespace(name=f"{text}-{number}"),
            Cohort(name=cohort),
            ClusterQueue(name=queue, cohort=cohort),
            LocalQueue(namespace="research", name=f"{text}-lq-{number}", cluster_queue=queue),
            Node(name=f"{text}-node-{number}", allocatable={"nvidia.com/gpu": 2}, labels={text or "x": text}),
            Workload(namespace="research", name=f"{text}-wl-{number}", queue=f"{text}-lq-{number}"),
            Pod(name=f"{text}-pod-{number}", node=f"{text}-node-{number}", gpus=(0,), message=text),
        ]
    return objects


@pytest.mark.parametrize(("view", "size"), zip(VIEWS, SIZES * len(VIEWS), strict=False), ids=str)
async def test_hostile_names_reach_no_screen_as_control_characters(
    view: str, size: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    async with shown(recorded(hostile_world(), history()), size) as (app, pilot):
        app.go(view)
        await pilot.pause()
        drawn = painted(app)
        for key in ("j", "j", "j", "x", "escape", "d", "escape", "y", "escape", "m", "escape", "end", "right", "right"):
            await press(pilot, key)
            drawn += painted(app)
            for notification in list(app._notifications):
                drawn += [notification.message]
        assert app.is_running
    assert [line for line in drawn if not line.isprintable()] == []
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.parametrize("name", ["console-dark", "console-light"])
async def test_both_themes_style_every_screen(name: str) -> None:
    async with shown() as (app, pilot):
        app.theme = name
        for view in VIEWS:
            app.go(view)
            await pilot.pause()
        assert app.is_running
        await press(pilot, "colon", *"theme", "enter", "home", "down", "enter")
        assert app.theme == "console-ansi"


async def test_roles_have_the_colours_of_the_theme_and_follow_a_change() -> None:
    async with shown() as (app, pilot):
        await press(pilot, "2")
        for theme in app.themes:
            app.theme = theme.name
            await pilot.pause()
            strips = app.screen._compositor.render_strips(app.size)
            colours = {
                s.style.color.name for strip in strips for s in strip if "████" in s.text if s.style and s.style.color
            }
            assert colours == {Color.parse(theme.variables["own"]).rich_color.name}


async def test_without_colours_the_cursor_and_the_states_can_still_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with shown() as (app, pilot):
        await press(pilot, "2", "j", "space")
        lines = painted(app)
    assert [line[:2] for line in lines if "cq-prod" in line] == [" *"]
    assert [line[:2] for line in lines if "▸ prod/lq-prod" in line] == ["▌ "]


def test_all_scopes_are_used() -> None:
    assert {action.scope for action in ACTIONS} == set(Scope)
