"""From keys to actions: what a screen offers, what a key means there, and how an action is done.

A screen names what it offers in `handlers()`. What cannot be done is refused with a reason; what is dangerous is asked
for first.
"""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from gpuconsole.ui.actions import ACTIONS, BY_ID, Action, Scope
from gpuconsole.ui.keymap import continuations, find, spell
from gpuconsole.ui.menus import hints, menu
from gpuconsole.ui.screens.asking import AskingScreen, Handler
from gpuconsole.ui.widgets.confirm import Question
from gpuconsole.ui.widgets.palette import Entry

if TYPE_CHECKING:
    from gpuconsole.services.console import Console
    from gpuconsole.ui.app import ConsoleApp

LOG = logging.getLogger("gpuconsole.ui.actions")

Handlers = Mapping[str, Handler]


class ActingScreen(AskingScreen):
    """A screen that does what a key means on it."""

    # For screens to fill in

    def handlers(self) -> Handlers:
        """Action id → what to do."""
        return {}

    def refusal(self, action: Action) -> str:
        """Why the action cannot be done now, for people; empty if it can."""
        if not action.changes:
            return ""
        status = self.console.status
        if not status.read_only:
            return ""
        return status.refusal if status.history else "this session is read-only"

    def question(self, action: Action) -> Question | None:
        """What to ask before a dangerous action; None where there is nothing to lose this time."""
        return Question(f"{action.label.capitalize()}?", (action.help,), yes=action.label.capitalize())

    def acted(self, action: Action) -> None:
        """Called when an action was done that needed no question."""

    # For screens to use

    @property
    def console(self) -> "Console":
        return self.console_app.cluster

    @property
    def console_app(self) -> "ConsoleApp":
        return cast("ConsoleApp", self.app)

    # What a key means here

    def offered(self) -> list[Action]:
        """Everything that can be asked of this screen, in the registry's order."""
        here = {**self.console_app.handlers(), **self.handlers()}
        found = [action for action in ACTIONS if action.id in here and not self._has_nothing_to_say(action)]
        # The answers have keys wherever the screen does not need these itself; `:` opens them everywhere.
        own = {key for action in found if action.scope is not Scope.ANSWERS for key in action.keys}
        return [action for action in found if action.scope is not Scope.ANSWERS or own.isdisjoint(action.keys)]

    def _has_nothing_to_say(self, action: Action) -> bool:
        """What only tells something is not offered where there is nothing to tell."""
        return action.id == "object.explain" and bool(self.refusal(action))

    def entries(self) -> list[Entry]:
        """What the palette shows."""
        return [Entry(action, self.refusal(action)) for action in self.offered() if action.id != "app.palette"]

    def means(self, key: str, before: str = "") -> bool:
        """Does the key do anything here?"""
        offered = self.offered()
        return self._action(key, before, offered) is not None or bool(continuations(key, offered))

    def press(self, key: str, before: str = "") -> None:
        """Do what a key means here. `before` is the key pressed just before it, for sequences such as `y y`."""
        offered = self.offered()
        action = self._action(key, before, offered)
        if action is not None:
            self.run(action)
        elif following := continuations(key, offered):
            self._hint(key, following)

    def _action(self, key: str, before: str, offered: list[Action]) -> Action | None:
        return find(f"{before} {key}", offered) or find(key, offered)

    def run(self, action: Action) -> None:
        """Do an action: refuse it with a reason, or ask first if it is dangerous."""
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
        """Everything that can be done with what is under the cursor; a second key picks."""
        self.choose("Actions", menu(self.offered(), self.refusal), self.run_id)
