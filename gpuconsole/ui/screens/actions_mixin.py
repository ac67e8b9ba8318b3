"""Dispatch of keys to actions: the actions that a screen offers, and how one is run.

A screen lists its actions in `handlers()`. An unavailable action is refused with a reason; a dangerous one asks for
confirmation.
"""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from gpuconsole.ui.actions import ACTIONS, BY_ID, Action, Scope
from gpuconsole.ui.keymap import continuations, find, spell
from gpuconsole.ui.menus import hints, menu
from gpuconsole.ui.screens.dialogs_mixin import AskingScreen, Handler
from gpuconsole.ui.widgets.confirm import Question
from gpuconsole.ui.widgets.palette import PaletteEntry

if TYPE_CHECKING:
    from gpuconsole.services.console import Console
    from gpuconsole.ui.app import ConsoleApp

LOG = logging.getLogger("gpuconsole.ui.actions")

Handlers = Mapping[str, Handler]


class ActingScreen(AskingScreen):
    """A screen that runs the action bound to a pressed key."""

    # Overridden by screens

    def handlers(self) -> Handlers:
        """Action id → handler."""
        return {}

    def refusal(self, action: Action) -> str:
        """Reason why the action is unavailable, shown to the user; empty if it is available."""
        if not action.changes:
            return ""
        status = self.console.status
        if not status.read_only:
            return ""
        return status.refusal if status.history else "this session is read-only"

    def question(self, action: Action) -> Question | None:
        """Confirmation before a dangerous action; None if nothing would be lost."""
        return Question(f"{action.label.capitalize()}?", (action.help,), yes=action.label.capitalize())

    def acted(self, action: Action) -> None:
        """Called after an action that needed no confirmation."""

    # Used by screens

    @property
    def console(self) -> "Console":
        return self.console_app.cluster

    @property
    def console_app(self) -> "ConsoleApp":
        return cast("ConsoleApp", self.app)

    # Keys

    def offered(self) -> list[Action]:
        """All actions of this screen, in the order of the registry."""
        here = {**self.console_app.handlers(), **self.handlers()}
        found = [action for action in ACTIONS if action.id in here and not self._has_nothing_to_say(action)]
        # A report keeps its key unless the screen uses that key itself; `:` opens it everywhere.
        own = {key for action in found if action.scope is not Scope.ANSWERS for key in action.keys}
        return [action for action in found if action.scope is not Scope.ANSWERS or own.isdisjoint(action.keys)]

    def _has_nothing_to_say(self, action: Action) -> bool:
        """Whether `explain` has nothing to explain, so that it is not offered."""
        return action.id == "object.explain" and bool(self.refusal(action))

    def entries(self) -> list[PaletteEntry]:
        """Entries of the palette."""
        return [PaletteEntry(action, self.refusal(action)) for action in self.offered() if action.id != "app.palette"]

    def means(self, key: str, before: str = "") -> bool:
        """Whether the key has an action on this screen."""
        offered = self.offered()
        return self._action(key, before, offered) is not None or bool(continuations(key, offered))

    def press(self, key: str, before: str = "") -> None:
        """Run the action of a key. `before` is the preceding key, for sequences such as `y y`."""
        offered = self.offered()
        action = self._action(key, before, offered)
        if action is not None:
            self.run(action)
        elif following := continuations(key, offered):
            self._hint(key, following)

    def _action(self, key: str, before: str, offered: list[Action]) -> Action | None:
        return find(f"{before} {key}", offered) or find(key, offered)

    def run(self, action: Action) -> None:
        """Run an action: refuse it with a reason, or ask for confirmation if it is dangerous."""
        LOG.info("action %s in %s", action.id, " › ".join(self.console_app.way))
        handler = {**self.console_app.handlers(), **self.handlers()}.get(action.id)
        if handler is None:
            self.flash(f"{action.label}: not available on this screen", "warning")
        elif reason := self.refusal(action):
            self.flash(f"{action.label}: {reason}", "warning")
        elif action.dangerous and (question := self.question(action)) is not None:
            self.ask(question, handler)
        else:
            handler()
            self.acted(action)

    def run_id(self, id: str) -> None:
        self.run(BY_ID[id])

    def _hint(self, prefix: str, following: Mapping[str, Action]) -> None:
        self.choose(f"{spell(prefix)} …", hints(following, self.refusal), self.run_id)

    def open_menu(self) -> None:
        """List the actions for the selected object; a second key picks one."""
        self.choose("Actions", menu(self.offered(), self.refusal), self.run_id)
