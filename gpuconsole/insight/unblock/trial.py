"""Trial whether a change admits a workload, in a fork where admission cycles run until another would change nothing.

Time does not pass: no workload ends, and evictions take effect at once. The number of trials is limited, not their
time, so that results are the same on every machine.
"""

from collections.abc import Iterable, Sequence

from gpuconsole.insight.blockers import dominant_blocker
from gpuconsole.insight.reasons import PendingReason
from gpuconsole.insight.unblock.apply_change import apply_change
from gpuconsole.insight.unblock.minimal_change import TriedEnough, minimal_changes
from gpuconsole.insight.unblock.steps import Step, Steps
from gpuconsole.model.decisions import Refuse
from gpuconsole.model.queues import WorkloadPriorityClass
from gpuconsole.scheduling.kueue.entry import CycleEntry
from gpuconsole.sim.admission_simulator import AdmissionSimulator

MOST_CYCLES = 200
"""A workload that is not admitted within this number of cycles counts as not admitted."""
MOST_CYCLES_IN_ALL = 2000
PROBATION = 10
"""A change does not count if the workload is evicted again within this number of cycles."""
_PROMISING = (
    PendingReason.NOT_WAITING,
    PendingReason.WAITING_FOR_VICTIMS,
    PendingReason.CONTENTION,
    PendingReason.PODS_READY,
)


class ChangeTrial:
    """Tries changes for a workload in forks of an AdmissionSimulator, and counts the trials. Mutable."""

    def __init__(
        self,
        rehearsal: AdmissionSimulator,
        key: str,
        classes: Iterable[WorkloadPriorityClass] = (),
        most_cycles: int = MOST_CYCLES_IN_ALL,
    ) -> None:
        self.rehearsal = rehearsal
        self.key = key
        self.classes = tuple(classes)
        """PriorityClasses to choose from."""
        self.tries = self.cycles = 0
        """Number of trials, and of cycles that were run for them."""
        self._most_cycles = most_cycles

    def works(self, steps: Sequence[Step]) -> bool:
        """True if the workload reserves quota once all these changes are made, and keeps it. Raises TriedEnough.

        Most changes fail early: if the next cycle refuses the workload even as the head of its queue, the trial ends.
        So a change that works may be missed, but a change that does not work never passes.
        """
        fork = self.changed(steps)
        return _promises(fork, self.key) and self._gets_in(fork) and self._stays(fork)

    def fails(self, steps: Sequence[Step]) -> bool:
        """True if the workload does not reserve quota with these changes; such a trial never ends early."""
        return not self._gets_in(self.changed(steps))

    def changed(self, steps: Sequence[Step]) -> AdmissionSimulator:
        """Return a fork with these changes."""
        self.tries += 1
        fork = self.rehearsal.fork()
        for step in steps:
            apply_change(fork, self.key, step)
        return fork

    def least(self, steps: Sequence[Step]) -> Steps:
        """Return the changes, each made as small as is still enough; see `minimal_changes`."""
        return minimal_changes(self, steps)

    def _gets_in(self, fork: AdmissionSimulator) -> bool:
        fork.wake()
        for _ in range(MOST_CYCLES):
            if not self._cycle(fork):
                return self._holds(fork)
            if self._holds(fork):
                return True
        return False

    def _stays(self, fork: AdmissionSimulator) -> bool:
        for _ in range(PROBATION):
            going = self._cycle(fork)
            if not self._holds(fork):
                return False
            if not going:
                break
        return True

    def _cycle(self, fork: AdmissionSimulator) -> bool:
        """Run a cycle; return False if another one would decide nothing."""
        if not fork.session.has_active:
            return False
        if self.cycles >= self._most_cycles:
            raise TriedEnough
        self.cycles += 1
        decided = fork.cycle()
        return fork.session.has_progressed or not all(isinstance(decision, Refuse) for decision in decided)

    def _holds(self, fork: AdmissionSimulator) -> bool:
        workload = fork.workloads.get(self.key)
        return workload is not None and workload.reserved and not workload.finished


def _promises(rehearsal: AdmissionSimulator, key: str) -> bool:
    """True if the next cycle alone would admit the workload, preempt for it, or leave it to a later cycle."""
    entry = examined(rehearsal, key)
    return entry is not None and dominant_blocker(entry) in _PROMISING


def examined(rehearsal: AdmissionSimulator, key: str) -> CycleEntry | None:
    """Return the cycle entry of the workload as if it were its queue's head; None if it is in no active queue."""
    entries = rehearsal.session.examine(rehearsal.now, key)
    return next((entry for entry in entries if entry.request.workload.key == key), None)
