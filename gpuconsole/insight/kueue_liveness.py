"""Liveness of Kueue, seen from outside: an admissible workload must not stay pending without any change."""

from collections.abc import Collection

from msgspec import Struct

from gpuconsole.insight.tables import counted
from gpuconsole.model.clock import SECOND, format_span
from gpuconsole.model.scan import changes
from gpuconsole.model.snapshot import EMPTY, Snapshot
from gpuconsole.model.workloads import Workload

PATIENCE = 30.0
"""Seconds that an admissible workload may stay pending without a change of any Workload's status."""


class KueueProblem(Struct, frozen=True):
    """A sign that Kueue does not work."""

    mark: str
    """In a few words, for the header."""
    text: str
    """In a sentence."""


class AdmissionWatch:
    """Detects that Kueue does not admit admissible workloads. Stateful; times are seconds of any one clock."""

    def __init__(self) -> None:
        self._workloads = EMPTY.workloads
        self._changed = 0.0
        """When the status of a Workload changed last, or watching began."""
        self._since: dict[str, float] = {}
        """Admissible workload → since when it is pending."""
        self._observed: float | None = None
        """When it was looked at last; None while nobody can know what is admissible."""

    def observe(self, snapshot: Snapshot, admissible: Collection[str] | None, now: float) -> None:
        """Take in the workloads that the engine would admit now; None if they are unknown."""
        if admissible is None:
            self._observed, self._since, self._workloads = None, {}, EMPTY.workloads
            return
        if self._observed is None or self._status_changed(snapshot):
            self._changed = now
        self._observed, self._workloads = now, snapshot.workloads
        pending = {key for key in admissible if _is_pending(snapshot.workloads.get(key))}
        self._since = {key: self._since.get(key, now) for key in pending}

    @property
    def problem(self) -> KueueProblem | None:
        """What was wrong at the last look, if anything was."""
        at = self._observed
        if at is None or at - self._changed < PATIENCE:
            return None
        stuck = [since for since in self._since.values() if at - since >= PATIENCE]
        if not stuck:
            return None
        span = format_span(int(at - max(min(stuck), self._changed)) * SECOND)
        them = counted(len(stuck), "admissible workload")
        return KueueProblem(
            f"Kueue admits nothing for {span}",
            f"Kueue does not admit: {them} pending for {span}, and no Workload's status changed; is its controller up?",
        )

    def _status_changed(self, snapshot: Snapshot) -> bool:
        if snapshot.workloads is self._workloads:
            return False
        gone, come = changes(self._workloads.rows, snapshot.workloads.rows)
        known = {one.key: one for one in gone}
        return any(_status(one) != _status(known.get(one.key)) for one in come)


def _is_pending(workload: Workload | None) -> bool:
    return workload is not None and workload.active and not workload.reserved and not workload.finished


def _status(workload: Workload | None) -> tuple[object, ...]:
    """What Kueue writes into a Workload; a missing one has the status of a new one."""
    if workload is None:
        return _UNTOUCHED
    return (
        workload.conditions,
        workload.admission,
        workload.requeue,
        dict(workload.reclaimable),
        workload.checks,
        workload.past_execution,
        workload.unhealthy_nodes,
        workload.nominated_clusters,
        workload.cluster,
    )


_UNTOUCHED = _status(Workload(name=""))
