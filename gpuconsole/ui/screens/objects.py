"""Actions on the selected object that every screen offers: describe, YAML, copy, events, delete, menu."""

from typing import NamedTuple

import msgspec

from gpuconsole.model.commands import Delete
from gpuconsole.ui.actions import Action
from gpuconsole.ui.names import called
from gpuconsole.ui.screens.actions_mixin import Handlers
from gpuconsole.ui.screens.background_tasks import run_in_background
from gpuconsole.ui.screens.base import ConsoleScreen
from gpuconsole.ui.screens.describe import describe_screen, events_screen, find, yaml_screen
from gpuconsole.ui.screens.editing import edit
from gpuconsole.ui.screens.pod_actions import PODDED, ask_port, open_shell, pods_of, show_logs
from gpuconsole.ui.screens.queue_description import QueueDescription
from gpuconsole.ui.screens.rights import SIMULATED, asked_by
from gpuconsole.ui.widgets.confirm import Question


class Subject(NamedTuple):
    """An object by name: its table as in `objects.TABLES`, and its key."""

    table: str
    key: str


class ObjectScreen(ConsoleScreen):
    """A screen with a selected object."""

    def subject(self) -> Subject | None:
        """The selected object."""
        return None

    def subjects(self) -> list[Subject]:
        """Targets of an action: all marked objects, else the selected one."""
        subject = self.subject()
        return [subject] if subject is not None else []

    def handlers(self) -> Handlers:
        if self.subject() is None:
            return super().handlers()
        return {
            **super().handlers(),
            "object.describe": self._describe,
            "object.yaml": self._yaml,
            "object.copy-name": self._copy_name,
            "object.copy-json": self._copy_json,
            "object.events": self._events,
            "object.menu": self.open_menu,
            "object.delete": self._delete,
            "object.edit": self.edit,
            **self._pod_handlers(),
        }

    def refusal(self, action: Action) -> str:
        return super().refusal(action) or self._not_allowed(action)

    def _not_allowed(self, action: Action) -> str:
        """Why the cluster does not support the action for this object, or RBAC forbids it."""
        subject, desk = self.subject(), self.console.object_access
        if desk is None:
            return SIMULATED.get(action.id, "")
        asked = asked_by(action.id, *subject) if subject is not None else None
        return desk.refusal(asked) if asked is not None else ""

    def _pod_handlers(self) -> Handlers:
        subjects = self.subjects()
        if not subjects or subjects[0].table not in PODDED:
            return {}
        name = name_all([subject.key for subject in subjects])
        return {
            "object.logs": lambda: show_logs(self, name, pods_of(self.snapshot, subjects)),
            "object.previous": lambda: show_logs(self, name, pods_of(self.snapshot, subjects), previous=True),
            "object.shell": lambda: open_shell(self, pods_of(self.snapshot, subjects)),
            "object.forward": lambda: ask_port(self, pods_of(self.snapshot, subjects)),
        }

    def edit(self) -> None:
        """Edit the manifest of the selected object."""
        if (subject := self.subject()) is not None:
            edit(self, *subject)

    def question(self, action: Action) -> Question | None:
        if action.id != "object.delete":
            return super().question(action)
        names = [subject.key for subject in self.subjects()]
        lines = (f"{name_all(names)} and its dependents will be deleted.", "This cannot be undone.")
        return Question(f"Delete {name_all(names)}?", lines, yes="Delete", word=self.delete_word())

    def delete_word(self) -> str:
        """The word to type before a delete: the name of one object, `delete` for several."""
        subjects = self.subjects()
        return called(subjects[0].key) if len(subjects) == 1 else "delete"

    def describe(self, subject: Subject) -> None:
        """Open the description of an object."""
        queue = subject.table == "cluster_queues"
        self.open(QueueDescription(subject.key) if queue else describe_screen(*subject))

    def _describe(self) -> None:
        if (subject := self.subject()) is not None:
            self.describe(subject)

    def _yaml(self) -> None:
        if (subject := self.subject()) is not None:
            self.open(yaml_screen(*subject))

    def _events(self) -> None:
        subject, desk = self.subject(), self.console.object_access
        if subject is None:
            return
        remembered = self.console.history(subject.key)
        if desk is None:
            self.open(events_screen(*subject, remembered))
        else:
            run_in_background(
                self,
                lambda: desk.events(*subject),
                lambda said: self.open(events_screen(*subject, remembered, said)),
            )

    def _copy_name(self) -> None:
        self._copy("\n".join(subject.key for subject in self.subjects()))

    def _copy_json(self) -> None:
        objs = [find(self.snapshot, *subject) for subject in self.subjects()]
        self._copy("\n".join(msgspec.json.encode(obj).decode() for obj in objs if obj is not None))

    def _copy(self, text: str) -> None:
        self.app.copy_to_clipboard(text)
        self.flash(f"Copied {text[:60]}")

    def _delete(self) -> None:
        subjects = self.subjects()
        self.send([Delete(*subject) for subject in subjects], f"Deleting {name_all([s.key for s in subjects])}")


def name_all(names: list[str]) -> str:
    """`a`, or `a, b and 3 more`."""
    names = [called(name) for name in names]
    if len(names) <= 3:
        return ", ".join(names)
    return f"{names[0]}, {names[1]} and {len(names) - 2} more"
