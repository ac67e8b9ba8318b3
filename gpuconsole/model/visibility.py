"""Visibility: which kinds of a cluster a Snapshot covers.

A kind that may not be listed is unknown, not zero; so is one of which only some namespaces, or not all objects, can be
read. Code that counts objects, or does not find one, checks `Snapshot.seen` first.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from gpuconsole.model.clock import SECOND, format_time
from gpuconsole.model.cluster import LimitRange, Namespace, Node, Pod
from gpuconsole.model.events import HistoryEvent
from gpuconsole.model.objects import TABLES
from gpuconsole.model.queues import AdmissionCheck, ClusterQueue, Cohort, LocalQueue, ResourceFlavor, Topology
from gpuconsole.model.workloads import Workload

HISTORY = "recent"
"""Table of the history, which is made from events."""
KEPT = 500
"""Number of the newest history events that a Snapshot keeps."""
_TABLES: dict[type, str] = {**TABLES, HistoryEvent: HISTORY}
ALWAYS: tuple[type, ...] = (Workload, ClusterQueue, LocalQueue, ResourceFlavor)
"""Kinds on which every decision depends."""
DECISIVE: tuple[type, ...] = (*ALWAYS, Cohort, AdmissionCheck, Topology, Node, Pod, Namespace, LimitRange)
"""Kinds on which decisions depend in some clusters; `insight.data_gaps` determines in which."""
_DECISIVE = frozenset(_TABLES[kind] for kind in DECISIVE)


class VisibilityGap(Struct, frozen=True, kw_only=True):
    """Kind of which the Snapshot lacks objects, and the reason."""

    table: str
    """Table of the Snapshot; `recent` for the history."""
    resource: str
    """API resource, such as `workloads.kueue.x-k8s.io`."""
    why: str
    """Reason, such as `cannot list workloads.kueue.x-k8s.io at the cluster scope`."""
    namespaces: tuple[str, ...] = ()
    """Namespaces whose objects are loaded."""
    partly: bool = False
    """Some objects are loaded, and others, in unknown namespaces, cannot be read."""


class Visibility(Struct, frozen=True, kw_only=True):
    """Missing kinds of a Snapshot, and assumptions about the schedulers; both empty for a simulated cluster."""

    gaps: tuple[VisibilityGap, ...] = ()
    assumed: tuple[str, ...] = ()
    """Assumptions about settings that the schedulers' configurations do not have, as sentences."""

    def missing_reasons(self, *kinds: type, within: str | None = None) -> tuple[str, ...]:
        """Return why objects of these kinds (in a namespace) are missing; empty if all are loaded."""
        tables = {_TABLES[kind] for kind in kinds}
        return _texts(gap for gap in self.gaps if gap.table in tables and (within is None or not _covers(gap, within)))

    def all_of(self, *kinds: type, within: str | None = None) -> bool:
        """True if all objects of these kinds (in a namespace) are loaded."""
        return not self.missing_reasons(*kinds, within=within)

    def is_unlisted(self, kind: type) -> bool:
        """True if no object of a kind is loaded."""
        return any(gap.table == _TABLES[kind] and not (gap.namespaces or gap.partly) for gap in self.gaps)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences about unknown facts that decisions depend on."""
        return (*self.assumed, *self.decisive_gaps)

    @property
    def decisive_gaps(self) -> tuple[str, ...]:
        """Return why kinds that decisions depend on are incomplete."""
        return _texts(gap for gap in self.gaps if gap.table in _DECISIVE)


class QueueAssumptions(Struct, frozen=True):
    """Numbers of refused workloads that are assumed to be inadmissible, or to be active again.

    Kueue keeps this in memory only, so a simulation that continues from a live cluster must reconstruct it.
    """

    inadmissible: int = 0
    """Nothing has changed in their cohort trees since."""
    tried_again: int = 0
    """Something has changed there, and it is unknown whether Kueue has retried them since."""


EVERYTHING = Visibility()
NO_ASSUMPTIONS = QueueAssumptions()
KUEUES = "Kueue's "
"""Prefix of the assumptions about Kueue."""


def with_truncated_history(seen: Visibility, recent: Sequence[HistoryEvent]) -> Visibility:
    """Mark the history before the kept events as unknown."""
    if len(recent) < KEPT or not seen.all_of(HistoryEvent):
        return seen
    why = f"nothing older than {format_time(recent[0].time // SECOND * SECOND)} is kept"
    return Visibility(gaps=(*seen.gaps, VisibilityGap(table=HISTORY, resource="events", why=why)), assumed=seen.assumed)


def only_namespaces_text(namespaces: Sequence[str]) -> str:
    """Say that only these namespaces are read."""
    several = len(namespaces) > 1
    return f"only namespace{'s' if several else ''} {', '.join(namespaces)} {'are' if several else 'is'} read"


def _covers(gap: VisibilityGap, namespace: str) -> bool:
    return namespace in gap.namespaces


def _texts(gaps: Iterable[VisibilityGap]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(gap.why for gap in gaps))
