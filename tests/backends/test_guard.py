"""Every write passes one place, which refuses where nothing may be changed, and notes each command and its outcome."""

import ast
from pathlib import Path

import pytest

import gpuconsole
from gpuconsole.backends.guard import AuditEntry, AuditOutcome, Guard
from gpuconsole.errors import ReadOnlyError
from gpuconsole.model.commands import Command, Cordon
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from tests.support.recorded_backend import RecordedBackend
from tests.support.recorded_events import PAST

CORDON = Cordon("node-1", True)
CORDON_TEXT = '{"type":"cordon","node":"node-1","cordoned":true}'


class Remembering(RecordedBackend):
    """A recording that takes commands and does nothing with them."""

    def __init__(self) -> None:
        super().__init__(PAST)
        self.commands: list[Command] = []

    def submit(self, command: Command) -> None:
        self.commands.append(command)


def test_a_command_is_passed_on_and_noted() -> None:
    backend, audit = Remembering(), list[AuditEntry]()
    Guard(backend, audit=audit.append).submit(CORDON, now=7)
    assert backend.commands == [CORDON]
    assert audit == [AuditEntry(time=7, command=CORDON_TEXT, outcome=AuditOutcome.SENT)]


def test_a_read_only_console_passes_nothing_on_and_notes_the_attempt() -> None:
    backend, audit = Remembering(), list[AuditEntry]()
    with pytest.raises(ReadOnlyError, match="without --read-only"):
        Guard(backend, read_only=True, audit=audit.append).submit(CORDON, now=7)
    assert backend.commands == []
    assert audit == [AuditEntry(time=7, command=CORDON_TEXT, outcome=AuditOutcome.READ_ONLY)]


def test_what_the_backend_does_not_take_is_noted_and_raised() -> None:
    audit = list[AuditEntry]()
    with pytest.raises(ReadOnlyError):
        Guard(RecordedBackend(PAST), audit=audit.append).submit(CORDON, now=7)
    [entry] = audit
    assert (entry.command, entry.outcome) == (CORDON_TEXT, AuditOutcome.FAILED)
    assert entry.detail.startswith("A recording is read-only")


def test_a_command_that_asks_for_what_is_so_already_is_noted_as_such() -> None:
    audit = list[AuditEntry]()
    guard = Guard(Remembering(), audit=audit.append)
    guard.came_back(
        HistoryEvent(time=9, what=HistoryEventKind.COMMAND_NEEDLESS, node="n1", message="node n1 is up already")
    )
    assert audit == [AuditEntry(time=9, command="n1", outcome=AuditOutcome.NO_CHANGE, detail="node n1 is up already")]


def test_a_refusal_that_comes_back_as_an_event_is_noted_and_other_events_are_not() -> None:
    audit = list[AuditEntry]()
    guard = Guard(Remembering(), audit=audit.append)
    guard.came_back(HistoryEvent(time=8, what=HistoryEventKind.NODE_CHANGED, node="node-1"))
    guard.came_back(
        HistoryEvent(time=9, what=HistoryEventKind.COMMAND_REFUSED, node="node-9", message="there is no node node-9")
    )
    assert audit == [
        AuditEntry(time=9, command="node-9", outcome=AuditOutcome.REFUSED, detail="there is no node node-9")
    ]


def test_a_huge_command_leaves_a_short_line() -> None:
    audit = list[AuditEntry]()
    Guard(Remembering(), audit=audit.append).submit(Cordon("n" * 10_000, True), now=7)
    assert len(audit[0].command) == 2_000


def test_only_the_guard_submits_to_a_backend() -> None:
    root = Path(gpuconsole.__file__).parent
    callers = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr == "submit" and "backend" in ast.unparse(node.value).lower()
    }
    assert callers == {"backends/guard.py"}


def test_only_the_packages_that_open_backends_import_them() -> None:
    """So that no screen gets hold of one under another name. `object_access` has only the forms of what is read."""
    root = Path(gpuconsole.__file__).parent
    importers = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if any(
            f"gpuconsole.backends{end}" in path.read_text().replace("gpuconsole.backends.base", "")
            for end in (".", " import")
        )
    }
    outside = {name for name in importers if not name.startswith(("backends/", "services/", "workers/", "cli/"))}
    assert outside == set()
