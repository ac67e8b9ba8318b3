"""Messages from threads and widgets to the app and the screens."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from textual.message import Message
from textual.notifications import SeverityLevel

from gpuconsole.model.snapshot import Snapshot

if TYPE_CHECKING:
    from gpuconsole.services.alerting import AlertNews


class LoggedMessage(Struct, frozen=True):
    """A text that was shown to the operator."""

    at: float
    """Seconds since the epoch."""
    severity: SeverityLevel
    text: str


@dataclass
class SnapshotReady(Message):
    """A Console published a Snapshot. Posted from its thread; only the newest one matters."""

    snapshot: Snapshot

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, SnapshotReady)


@dataclass
class AlertsChanged(Message):
    """Alerts began to fire or were resolved. Posted from the thread that evaluates the rules."""

    news: "AlertNews"


@dataclass
class RowOpened(Message):
    """A row of a grid was opened with the mouse."""

    row: Any


@dataclass
class RowPicked(Message):
    """The cursor of a grid moved to another row; the row is None where the grid became empty."""

    row: Any


@dataclass
class CommandEntered(Message):
    """A line was entered at the `:` prompt."""

    text: str


@dataclass
class FilterChanged(Message):
    """The text of the filter line changed."""

    text: str


class FilterClosed(Message):
    """The filter line lost the focus; its filter remains."""
