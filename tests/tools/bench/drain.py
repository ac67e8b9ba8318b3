"""A bare session with a clock: workloads appear, are admitted, run and end, and nothing else happens.

What Kueue's own performance runner does with an API server: it ends evictions at once, and finishes a workload when it
has been admitted for its run time. What an eviction interrupts begins anew.
"""

from collections import Counter
from collections.abc import Iterable
from heapq import heappop, heappush

from gpuconsole.model.clock import Span, Time
from gpuconsole.model.events import Admit, Preempt, Refuse
from gpuconsole.model.objects import Object
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue import conditions
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.session import KueueSession
from tests.tools.bench.kueue_loads import START, Arrival


class Drain:
    """Runs arrivals to completion. Mutates.

    `batch`: how long wake-ups are gathered, 0 = at once. `pace`: how long the API server takes for an admission.
    """

    def __init__(
        self, things: Iterable[Object], arrivals: Iterable[Arrival], *, batch: Span = 0, pace: Span = 0
    ) -> None:
        self.session, self.now = KueueSession(KueueConfig()), START
        self.batch, self.pace = batch, pace
        self.admissions, self.evictions, self.cycles = 0, 0, 0
        self.waited: Counter[str] = Counter()
        """Kind → µs from creation to admission, all together; a second admission counts anew."""
        self.admitted: Counter[str] = Counter()
        self._coming = sorted(arrivals, key=lambda arrival: -arrival.workload.created)
        self._facts: dict[str, Arrival] = {}
        self._workloads: dict[str, Workload] = {}
        self._ends: list[tuple[Time, int, str]] = []
        """A heap; an entry whose number is not the workload's latest is void."""
        self._latest: dict[str, int] = {}
        self._wake_at: Time | None = None
        for thing in things:
            self.session.apply(thing, self.now)
        self.session.requeue_inadmissible(self.now)

    def run(self) -> None:
        """Go on until nothing is left to happen."""
        while self._proceed():
            pass

    @property
    def elapsed(self) -> Span:
        """Virtual time since the start."""
        return self.now - START

    @property
    def left(self) -> int:
        """Workloads that have not ended."""
        return len(self._workloads) + len(self._coming)

    def waits(self) -> dict[str, Span]:
        """Mean time from creation to admission, by kind, the most urgent first."""
        return {kind: self.waited[kind] // count for kind, count in reversed(self.admitted.items())}

    def _proceed(self) -> bool:
        """Let happen what is due, then try the heads, or else go on to the next moment. False if there is none."""
        self._happen()
        if self.session.has_heads:
            self._cycle()
            if self.session.has_progressed:
                return True
        following = self._next()
        if following is None:
            return False
        self.now = max(self.now, following)
        return True

    def _next(self) -> Time | None:
        moments = [self._coming[-1].workload.created] if self._coming else []
        if self._ends:
            moments.append(self._ends[0][0])
        if self._wake_at is not None:
            moments.append(self._wake_at)
        return min(moments, default=None)

    def _happen(self) -> None:
        while self._ends and self._ends[0][0] <= self.now:
            _, number, key = heappop(self._ends)
            if self._latest.get(key) == number:
                self._put(conditions.mark_finished(self._workloads[key], "ByTest", "By test runner", self.now))
                del self._workloads[key], self._latest[key]
        while self._coming and self._coming[-1].workload.created <= self.now:
            arrival = self._coming.pop()
            self._facts[arrival.workload.key] = arrival
            self._put(arrival.workload)
        self._wake()

    def _wake(self) -> None:
        if self._wake_at is None and self.session.has_requeue_due:
            self._wake_at = self.now + self.batch
        if self._wake_at is not None and self._wake_at <= self.now:
            self._wake_at = None
            self.session.requeue_inadmissible(self.now)

    def _cycle(self) -> None:
        """One scheduling cycle with its consequences."""
        self.cycles += 1
        self.now += 1  # A microsecond: of those admitted in one moment the newest is evicted first.
        for decision in self.session.run_cycle(self.now):
            workload = self._workloads[decision.workload]
            match decision:
                case Admit():
                    self.now += self.pace
                    self._put(
                        conditions.sync_admitted(
                            conditions.reserve_quota(workload, decision.admission, self.now), self.now
                        )
                    )
                    self._started(decision.workload)
                case Preempt():
                    evicted = conditions.mark_evicted(workload, "Preempted", decision.message, self.now, decision.rule)
                    self._put(conditions.release_quota(evicted, self.now))
                    self._latest.pop(decision.workload, None)
                    self.evictions += 1
                case Refuse():
                    told = conditions.set_pending_reason(workload, decision.reason, decision.message, self.now)
                    if told is not workload:
                        self._put(told)

    def _started(self, key: str) -> None:
        self.admissions += 1
        arrival = self._facts[key]
        self.admitted[arrival.kind] += 1
        self.waited[arrival.kind] += self.now - arrival.workload.created
        self._latest[key] = self.admissions
        heappush(self._ends, (self.now + arrival.runtime, self.admissions, key))

    def _put(self, workload: Workload) -> None:
        self._workloads[workload.key] = workload
        self.session.apply(workload, self.now)
