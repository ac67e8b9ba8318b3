"""Admission alone, with a clock: workloads appear, are admitted, run and end, and nothing else happens.

What Kueue's own performance runner does with an API server: it ends evictions at once, and finishes a workload when it
has been admitted for its run time. What an eviction interrupts begins anew.
"""

from collections import Counter
from collections.abc import Iterable
from heapq import heappop, heappush

from gpuconsole.model.clock import Span, Time
from gpuconsole.model.events import AdmissionDecision, Admit, Preempt
from gpuconsole.model.objects import Object
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.scheduler import ReportRefusals
from gpuconsole.scheduling.kueue.session import KueueSession
from gpuconsole.sim.admission_simulator import AdmissionSimulator
from tests.tools.bench.kueue_loads import START, Arrival


class Drain(AdmissionSimulator):
    """Runs arrivals to completion. Mutates.

    `batch`: how long wake-ups are gathered, 0 = at once. `pace`: how long the API server takes for an admission.
    """

    def __init__(
        self, things: Iterable[Object], arrivals: Iterable[Arrival], *, batch: Span = 0, pace: Span = 0
    ) -> None:
        super().__init__(KueueSession(KueueConfig()), START, requeues_at_once=False, report=ReportRefusals.EVERY)
        self.batch, self.pace = batch, pace
        self.admissions, self.evictions, self.cycles = 0, 0, 0
        self.waited: Counter[str] = Counter()
        """Kind → µs from creation to admission, all together; a second admission counts anew."""
        self.admitted: Counter[str] = Counter()
        self._coming = sorted(arrivals, key=lambda arrival: -arrival.workload.created)
        self._unfinished: dict[str, Arrival] = {}
        self._ends: list[tuple[Time, int, str]] = []
        """A heap; an entry whose number is not the workload's latest is void."""
        self._latest: dict[str, int] = {}
        self._wake_at: Time | None = None
        for thing in things:
            self.apply(thing)
        self.requeue_inadmissible()

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
        return len(self._unfinished) + len(self._coming)

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
                self.finish(key)
                del self._unfinished[key], self._latest[key]
        while self._coming and self._coming[-1].workload.created <= self.now:
            arrival = self._coming.pop()
            self._unfinished[arrival.workload.key] = arrival
            self.apply(arrival.workload)
        self._wake()

    def _wake(self) -> None:
        if self._wake_at is None and self.session.has_requeue_due:
            self._wake_at = self.now + self.batch
        if self._wake_at is not None and self._wake_at <= self.now:
            self._wake_at = None
            self.requeue_inadmissible()

    def _cycle(self) -> None:
        """One scheduling cycle with its consequences."""
        self.cycles += 1
        self.run_cycle(self.now + 1)  # A microsecond: of those admitted in one moment the newest is evicted first.

    def apply_decision(self, decision: AdmissionDecision) -> bool:
        """Apply a decision: an admission takes its time, and begins a run; an eviction ends one."""
        if isinstance(decision, Admit):
            self.now += self.pace
            self._started(decision.workload)
        elif isinstance(decision, Preempt):
            self._latest.pop(decision.workload, None)
            self.evictions += 1
        return super().apply_decision(decision)

    def _started(self, key: str) -> None:
        self.admissions += 1
        arrival = self._unfinished[key]
        self.admitted[arrival.kind] += 1
        self.waited[arrival.kind] += self.now - arrival.workload.created
        self._latest[key] = self.admissions
        heappush(self._ends, (self.now + arrival.runtime, self.admissions, key))
