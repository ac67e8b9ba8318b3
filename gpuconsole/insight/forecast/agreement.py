"""Results of comparing Kueue's decisions with the engine's: counts, and each disagreement with both decisions."""

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from gpuconsole.insight.tables import seconds
from gpuconsole.model.clock import DAY, HOUR, Time

KEPT = 200
"""Maximum number of disagreements that are listed; older ones are only counted."""
GOOD = 0.995
"""Agreement from which on rehearsals can be trusted."""


class DecisionKind(StrEnum):
    """Kind of a decision of Kueue's scheduler."""

    RESERVED = "quota-reserved"
    PREEMPTED = "preempted"
    EVICTED = "evicted"
    """Evicted by the scheduler because no healthy node could replace a failed one."""
    PENDING = "pending"
    """Refused: its condition QuotaReserved=False got another reason or message."""


class StateOrigin(StrEnum):
    """The state on which the engine decides as Kueue did."""

    CURRENT = "current"
    """The state just before the decision."""
    EARLIER = "earlier"
    """A state of the last second: Kueue had not read the newest changes yet."""
    REQUEUED = "requeued"
    """One of these, if the inadmissible workloads had been requeued."""
    QUEUES = "queues"
    """One of these, if only the decided workload was active, or its search resumed at another flavor."""


class DisagreementCause(StrEnum):
    """How the engine's decision differs from Kueue's."""

    OTHER_FLAVORS = "other-flavors"
    """Both reserve quota, for other flavors or another number of pods."""
    NOT_RESERVED = "not-reserved"
    """Kueue reserved quota, and the engine refuses the workload."""
    NOT_REFUSED = "not-refused"
    """Kueue refused the workload, and the engine reserves quota for it."""
    OTHER_MESSAGE = "other-message"
    """Both refuse the workload, with other reasons or amounts."""
    OTHER_PREEMPTOR = "other-preemptor"
    """Both preempt the workload, for another preemptor or by another rule."""
    NOT_PREEMPTED = "not-preempted"
    """Kueue evicted the workload, and the engine leaves it running."""
    NOT_TRIED = "not-tried"
    """The engine's cycles do not come to this workload."""


class ShadowDisagreement(Struct, frozen=True, kw_only=True):
    """A decision of Kueue that the engine makes on none of the possible states."""

    time: Time
    """When the change was observed."""
    workload: str
    queue: str = ""
    """Its ClusterQueue."""
    kind: DecisionKind
    expected: str
    """What the engine decides on the state just before, in words."""
    actual: str
    """What Kueue decided, in words."""
    cause: DisagreementCause


class AgreementCounts(Struct, frozen=True):
    """Numbers of decisions of Kueue that were compared with the engine's."""

    decisions: int = 0
    agreed: int = 0
    unknown: int = 0
    """Decisions that depend on what happened before the shadow began, or for which there was no time to search."""

    def __add__(self, other: "AgreementCounts") -> "AgreementCounts":
        return AgreementCounts(
            self.decisions + other.decisions, self.agreed + other.agreed, self.unknown + other.unknown
        )

    def __sub__(self, other: "AgreementCounts") -> "AgreementCounts":
        return AgreementCounts(
            self.decisions - other.decisions, self.agreed - other.agreed, self.unknown - other.unknown
        )

    @property
    def known(self) -> int:
        """Decisions that can be judged."""
        return self.decisions - self.unknown

    @property
    def disagreed(self) -> int:
        return self.known - self.agreed

    @property
    def agreement(self) -> float:
        """Fraction of the known decisions that the engine made as Kueue did; 1 without decisions."""
        return self.agreed / self.known if self.known else 1.0

    @property
    def is_good(self) -> bool:
        """True if rehearsals on this cluster can be trusted."""
        return self.agreement >= GOOD

    def __str__(self) -> str:
        """The agreement as text, such as `99.8%`; rounded down, so that it is 100% only without a disagreement."""
        return f"{int(self.agreement * 1000) / 10:.1f}%"


NO_COMPARISON = AgreementCounts()


def agreement_sentence(last_day: AgreementCounts, known_since: Time | None = None) -> str:
    """Return how often the engine decided as Kueue did in the last 24 hours, as a sentence about this cluster.

    `known_since` is when the first decision could be judged, if that is known.
    """
    until = f" until {seconds(known_since)}" if known_since is not None else ""
    if last_day.known:
        agreed = f"{last_day.agreed:,} of {last_day.known:,} decisions"
        more = f"; {last_day.unknown:,} more are unknown{until}" if last_day.unknown else ""
        return f"The engine agreed with Kueue in {agreed} of the last 24 h on this cluster{more}."
    if last_day.unknown:
        return f"The engine's agreement with Kueue on this cluster is unknown{until or ' yet'}."
    return "No decision of Kueue was compared with the engine in the last 24 h on this cluster."


class AgreementRecord(Struct, frozen=True, kw_only=True):
    """Decisions by the hour, and disagreements: what the history keeps of the shadows of a cluster."""

    hours: Mapping[int, AgreementCounts] = {}
    """Number of an hour since 1970 → the decisions in it."""
    disagreements: tuple[ShadowDisagreement, ...] = ()
    """Oldest first."""

    def __add__(self, other: "AgreementRecord") -> "AgreementRecord":
        hours = {hour: self.hours.get(hour, NO_COMPARISON) for hour in (*self.hours, *other.hours)}
        return AgreementRecord(
            hours={hour: counts + other.hours.get(hour, NO_COMPARISON) for hour, counts in hours.items()},
            disagreements=(*self.disagreements, *other.disagreements),
        )

    def __bool__(self) -> bool:
        return bool(self.hours or self.disagreements)

    def without(self, other: "AgreementRecord") -> "AgreementRecord":
        """Return what was added since `other`, which this record continues."""
        added = {hour: counts - other.hours.get(hour, NO_COMPARISON) for hour, counts in self.hours.items()}
        return AgreementRecord(
            hours={hour: counts for hour, counts in added.items() if counts.decisions},
            disagreements=self.disagreements[len(other.disagreements) :],
        )

    def day_before(self, now: Time) -> "AgreementRecord":
        """Return the decisions of the 24 hours before `now`, in whole hours, with the newest disagreements."""
        found = tuple(one for one in self.disagreements if now - DAY < one.time <= now)
        hours = {hour: counts for hour, counts in self.hours.items() if first_hour(now) <= hour <= now // HOUR}
        return AgreementRecord(hours=hours, disagreements=found[-KEPT:])

    @property
    def counts(self) -> AgreementCounts:
        """All decisions."""
        return sum(self.hours.values(), NO_COMPARISON)

    def as_report(self, now: Time) -> "ShadowReport":
        """Return the 24 hours before `now` as a report of what a shadow found by then."""
        day = self.day_before(now)
        return ShadowReport(
            since=now - DAY,
            until=now,
            counts=day.counts,
            hours=day.hours,
            causes=Counter(one.cause for one in day.disagreements),
            disagreements=day.disagreements,
            known_since=now - DAY,
        )


def first_hour(now: Time) -> int:
    """Return the number of the first of the 24 hours before `now`."""
    return (now - DAY) // HOUR + 1


class ShadowReport(Struct, frozen=True, kw_only=True):
    """What a shadow has found since its begin."""

    since: Time = 0
    until: Time = 0
    counts: AgreementCounts = AgreementCounts()
    hours: Mapping[int, AgreementCounts] = {}
    """Number of an hour since 1970 → the decisions in it, of the last 24 hours."""
    kinds: Mapping[DecisionKind, AgreementCounts] = {}
    states: Mapping[StateOrigin, int] = {}
    """Number of agreements by the state on which the engine agrees."""
    causes: Mapping[DisagreementCause, int] = {}
    """Number of all disagreements by cause."""
    disagreements: tuple[ShadowDisagreement, ...] = ()
    """The newest disagreements, at most `KEPT`."""
    without_history: int = 0
    """Number of cohort trees whose inadmissible workloads have not been requeued since the begin."""
    known_since: Time | None = None
    """When the last of these trees was requeued; None as long as there are any."""

    @property
    def last_day(self) -> AgreementCounts:
        """The decisions of the last 24 hours."""
        return AgreementRecord(hours=self.hours).counts

    def news(self, earlier: "ShadowReport") -> AgreementRecord:
        """Return the decisions since an earlier report of the same shadow."""
        added = AgreementRecord(hours=self.hours).without(AgreementRecord(hours=earlier.hours))
        count = self.counts.disagreed - earlier.counts.disagreed
        return AgreementRecord(hours=added.hours, disagreements=self.disagreements[-count:] if count else ())
