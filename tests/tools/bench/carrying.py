"""A Session whose decisions are carried out at once, as the API server and the controllers would."""

from collections import deque
from collections.abc import Iterable

from gpuconsole.model.clock import SECOND, Time, parse_time
from gpuconsole.model.events import Admit, Preempt, Refuse
from gpuconsole.model.objects import Object
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue import conditions
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.session import KueueSession

START: Time = parse_time("2026-01-05T08:00:00Z")


class Cluster:
    """Queues, who waits in them, and who runs. Mutates."""

    def __init__(self, things: Iterable[Object], pending: Iterable[Workload], config: KueueConfig) -> None:
        self.session, self.now = KueueSession(config), START
        self.workloads: dict[str, Workload] = {}
        self.running: deque[str] = deque()
        for thing in things:
            self.session.apply(thing, self.now)
        for workload in pending:
            self.add(workload)

    def add(self, workload: Workload) -> None:
        """A workload appears, or changes."""
        self.workloads[workload.key] = workload
        self.session.apply(workload, self.now)

    def cycle(self) -> None:
        """One scheduling cycle with its consequences."""
        self.now += SECOND
        self.session.requeue_inadmissible(self.now)
        for decision in self.session.run_cycle(self.now):
            workload = self.workloads[decision.workload]
            match decision:
                case Admit():
                    self.add(
                        conditions.sync_admitted(
                            conditions.reserve_quota(workload, decision.admission, self.now), self.now
                        )
                    )
                    self.running.append(workload.key)
                case Preempt():
                    evicted = conditions.mark_evicted(workload, "Preempted", decision.message, self.now, decision.rule)
                    self.add(conditions.release_quota(evicted, self.now))
                    self.running.remove(workload.key)
                case Refuse():
                    self.add(conditions.set_pending_reason(workload, decision.reason, decision.message, self.now))

    def finish(self, count: int) -> None:
        """The longest-running workloads end."""
        for _ in range(min(count, len(self.running))):
            workload = self.workloads[self.running.popleft()]
            self.add(conditions.mark_finished(workload, "Succeeded", "done", self.now))
