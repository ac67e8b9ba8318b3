"""A head on its way through one cycle: what it was nominated for, and what became of it."""

from collections.abc import Sequence
from enum import Enum, auto

from gpuconsole.scheduling.kueue.assignment import Assignment, Resume
from gpuconsole.scheduling.kueue.pending import Requeue
from gpuconsole.scheduling.kueue.preemption import Target
from gpuconsole.scheduling.kueue.requests import Request
from gpuconsole.scheduling.kueue.rules import QueueRules


class Status(Enum):
    """How far the entry got. All but ASSUMED go back to their queue."""

    NOT_NOMINATED = auto()
    SKIPPED = auto()
    """It would have fitted, had an earlier entry of this cycle not come first."""
    ASSUMED = auto()
    """Quota is reserved for it."""


class Entry:
    """Mutated by the steps of the cycle."""

    __slots__ = ("assignment", "message", "preemptor", "request", "requeue", "resume", "rules", "status", "targets")

    def __init__(self, request: Request, rules: QueueRules, *, preemptor: bool = False) -> None:
        self.request = request
        self.rules = rules
        self.preemptor = preemptor
        """Its preemptions are under way since an earlier cycle."""
        self.assignment = Assignment()
        self.targets: Sequence[Target] = ()
        self.status = Status.NOT_NOMINATED
        self.message = ""
        self.requeue = Requeue.GENERIC
        self.resume: Resume | None = None
        """Where the search for flavors goes on in the next cycle."""

    def record(self, assignment: Assignment, targets: Sequence[Target]) -> None:
        self.assignment = assignment
        self.targets = targets
        self.message = assignment.message
        self.resume = assignment.resume

    def skip(self, message: str) -> None:
        self.status = Status.SKIPPED
        self.message = message
