"""A cluster whose admission is simulated without pods, for benches that measure one cycle after the other."""

from collections import deque
from collections.abc import Iterable

from gpuconsole.model.clock import SECOND, Time, parse_time
from gpuconsole.model.events import AdmissionDecision, Admit, Preempt
from gpuconsole.model.objects import Object
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.scheduler import ReportRefusals
from gpuconsole.scheduling.kueue.session import KueueSession
from gpuconsole.sim.admission_simulator import AdmissionSimulator

START: Time = parse_time("2026-01-05T08:00:00Z")


class Cluster(AdmissionSimulator):
    """An admission simulator that knows which workloads run, in the order of their admission. Mutates."""

    def __init__(self, things: Iterable[Object], pending: Iterable[Workload], config: KueueConfig) -> None:
        super().__init__(KueueSession(config), START, requeues_at_once=False, report=ReportRefusals.EVERY)
        self.running: deque[str] = deque()
        for thing in (*things, *pending):
            self.apply(thing)

    def cycle(self) -> None:
        """Requeue inadmissible workloads, and run one cycle, a second later."""
        self.now += SECOND
        self.requeue_inadmissible()
        self.run_cycle(self.now)

    def apply_decision(self, decision: AdmissionDecision) -> bool:
        """Apply a decision, and keep account of the running workloads."""
        match decision:
            case Admit():
                self.running.append(decision.workload)
            case Preempt():
                self.running.remove(decision.workload)
        return super().apply_decision(decision)

    def finish_oldest(self, count: int) -> None:
        """Finish the workloads that have run the longest."""
        for _ in range(min(count, len(self.running))):
            self.finish(self.running.popleft())
