"""The single path of all writes: refuses them in a read-only console, and writes an audit entry for each."""

import logging
from collections.abc import Callable
from enum import StrEnum

import msgspec
from msgspec import Struct

from gpuconsole.backends.base import Backend
from gpuconsole.errors import ConsoleError, ReadOnlyError
from gpuconsole.model.clock import Time
from gpuconsole.model.commands import Command
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.text import clean

AUDIT = logging.getLogger("gpuconsole.audit")
MAX_LINE = 2_000
"""Maximum characters of a command in the audit log."""
READ_ONLY = "This console is read-only; restart it without --read-only to make changes"


class AuditOutcome(StrEnum):
    """Outcome of an audited command."""

    SENT = "sent"
    """The command was passed to the backend; its effect arrives as events."""
    READ_ONLY = "read-only"
    FAILED = "failed"
    """The backend did not accept the command."""
    DONE = "done"
    """The live API server carried the command out."""
    REFUSED = "refused"
    """The backend accepted the command, but it was refused later."""
    NO_CHANGE = "so-already"
    """The backend accepted the command, but nothing had to be changed."""


_OUTCOMES = {
    HistoryEventKind.COMMAND_REFUSED: AuditOutcome.REFUSED,
    HistoryEventKind.COMMAND_DONE: AuditOutcome.DONE,
    HistoryEventKind.COMMAND_NEEDLESS: AuditOutcome.NO_CHANGE,
}


class AuditEntry(Struct, frozen=True, kw_only=True):
    """A line of the audit log. `command` is the command as JSON, or for a later outcome the object that it is about."""

    time: Time
    command: str
    outcome: AuditOutcome
    detail: str = ""


class Guard:
    """Passes commands to a backend if changes are allowed, and audits them. The only caller of `Backend.submit`."""

    def __init__(
        self,
        backend: Backend,
        *,
        read_only: bool = False,
        protected: str = "",
        audit: Callable[[AuditEntry], None] | None = None,
        unaudited: Callable[[], str] = str,
    ) -> None:
        """`protected` says why nothing may be changed in this cluster; empty if changes are allowed.

        `unaudited` says why while changes cannot be recorded in the audit log that this cluster requires; else empty.
        """
        self._backend = backend
        self._audit = audit
        self._protected = protected
        self._unaudited = unaudited
        self.read_only = read_only
        self.suspended = ""
        """Why nothing may be changed for the moment, such as that an earlier time is shown; empty otherwise."""

    @property
    def refusal(self) -> str:
        """Reason why changes are refused; empty if they are allowed."""
        return self.suspended or (READ_ONLY if self.read_only else self._protected or self._unaudited())

    def submit(self, command: Command, now: Time) -> None:
        """Send a command. Raises ReadOnlyError if changes are refused, or the backend's error."""
        if refusal := self.refusal:
            self._note(now, command, AuditOutcome.READ_ONLY)
            raise ReadOnlyError(refusal)
        try:
            self._backend.submit(command)
        except ConsoleError as error:
            self._note(now, command, AuditOutcome.FAILED, str(error))
            raise
        self._note(now, command, AuditOutcome.SENT)

    def permit(self, words: str, now: Time) -> None:
        """Allow and audit an action beside commands that may change the cluster, such as a shell. Raises ReadOnlyError.

        `words` describe the action in the audit log.
        """
        refusal = self.refusal
        self._write(
            AuditEntry(time=now, command=clean(words), outcome=AuditOutcome.READ_ONLY if refusal else AuditOutcome.SENT)
        )
        if refusal:
            raise ReadOnlyError(refusal)

    def note(self, words: str, now: Time, detail: str, *, failed: bool) -> None:
        """Audit the outcome of an action that `permit` allowed, with the same `words`."""
        outcome = AuditOutcome.FAILED if failed else AuditOutcome.DONE
        self._write(AuditEntry(time=now, command=clean(words), outcome=outcome, detail=clean(detail)))

    def came_back(self, happened: HistoryEvent) -> None:
        """Audit the outcome of an earlier command, if that is what this history event reports."""
        outcome = _OUTCOMES.get(happened.what)
        if outcome is not None:
            subject = happened.workload or happened.pod or happened.queue or happened.node
            self._write(AuditEntry(time=happened.time, command=subject, outcome=outcome, detail=happened.message))

    def _note(self, now: Time, command: Command, outcome: AuditOutcome, detail: str = "") -> None:
        text = clean(msgspec.json.encode(command).decode(), MAX_LINE)
        self._write(AuditEntry(time=now, command=text, outcome=outcome, detail=detail))

    def _write(self, entry: AuditEntry) -> None:
        AUDIT.info("%s %s %s", entry.outcome, entry.command, entry.detail)
        if self._audit is not None:
            self._audit(entry)
