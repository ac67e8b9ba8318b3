"""`d` and `y`: any object in words, and as YAML."""

from collections.abc import Sequence
from typing import cast

from gpuconsole.backends.object_access import KubeEvent
from gpuconsole.model.clock import Time, format_span
from gpuconsole.model.events import HistoryEvent
from gpuconsole.model.objects import Object
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.ui.describing.events import about, events
from gpuconsole.ui.describing.objects import describe
from gpuconsole.ui.paint import Painted
from gpuconsole.ui.screens.text import TextScreen
from gpuconsole.ui.widgets.textpane import BLANK, heading, text_line, yaml_lines
from gpuconsole.ui.yaml_view import as_yaml


def find(snapshot: Snapshot, table: str, key: str) -> Object | None:
    """An object by its table's name and its key."""
    return cast("Object | None", getattr(snapshot, table).get(key))


def describe_screen(table: str, key: str) -> TextScreen:
    """A screen that describes an object."""
    return TextScreen(f"describe {key}", lambda snapshot: describe(snapshot, table, key), copied=key)


def yaml_screen(table: str, key: str) -> TextScreen:
    """A screen that shows an object as YAML."""

    def source(snapshot: Snapshot) -> list[Painted] | None:
        obj = find(snapshot, table, key)
        return None if obj is None else yaml_lines(as_yaml(obj))

    return TextScreen(f"yaml {key}", source, wrap=False, copied=key)


def events_screen(table: str, key: str, history: Sequence[HistoryEvent], said: Sequence[KubeEvent] = ()) -> TextScreen:
    """A screen with the recorded history of an object and its Kubernetes Events."""

    def source(snapshot: Snapshot) -> list[Painted]:
        newest = history[-1].time if history else 0
        later = [row for row in about(snapshot.recent, table, key) if row.time > newest]
        return [*events([*history, *later], snapshot.time, key)[1:], *_of_kubernetes(said, snapshot.time)]

    return TextScreen(f"events {key}", source, copied=key)


def _of_kubernetes(said: Sequence[KubeEvent], now: Time) -> list[Painted]:
    if not said:
        return []
    lines = [BLANK, heading("Kubernetes Events")]
    for one in said:
        age, times = f"{format_span(max(0, now - one.time))} ago", f" ×{one.count}" if one.count > 1 else ""
        reason = (f"{one.reason:<16} ", "fault" if one.warning else "")
        lines.append(text_line((f"  {age:>12}  ", "dim"), reason, one.message, (f"{times}  {one.about}", "dim")))
    return lines
