"""Trial admission of a workload in a fork: with a change, or on an empty cluster.

`ChangeTrial` runs admission cycles until another would change nothing. Time does not pass: no workload ends, and
evictions take effect at once. The number of cycles is limited, not their time, so that results are the same on every
machine. `dominant_blocker` reads the reason code from the engine's entry (`KueueSession.examine`), not from a message.
`EmptyCluster` finds workloads that Kueue can never admit.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from gpuconsole.insight.pending.reasons import SEVERITY, PendingReason
from gpuconsole.insight.unblock.changes import Step, Steps, TriedEnough, apply_change, minimal_changes
from gpuconsole.model.cluster import Namespace, Node, Pod
from gpuconsole.model.events import Refuse
from gpuconsole.model.job import Job
from gpuconsole.model.pod_template import PodSet
from gpuconsole.model.queues import WorkloadPriorityClass
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue import messages
from gpuconsole.scheduling.kueue.assignment import FlavorAssignmentMode, FlavorResult, FlavorSearch, PodSetResult
from gpuconsole.scheduling.kueue.cluster_queue import RequeueReason
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.entry import CycleEntry, EntryStatus
from gpuconsole.scheduling.kueue.messages import GranularReason
from gpuconsole.scheduling.kueue.session import KueueSession
from gpuconsole.sim.admission_simulator import AdmissionSimulator
from gpuconsole.sim.autoscaling.policy import Capacity, FixedCapacity

_CAUSES = {
    GranularReason.NONE: PendingReason.QUOTA,
    GranularReason.WAITING_FOR_QUOTA: PendingReason.QUOTA,
    GranularReason.EXCEEDS_MAX_QUOTA: PendingReason.EXCEEDS_MAX,
    GranularReason.NO_MATCHING_FLAVOR: PendingReason.FLAVOR_MISMATCH,
    GranularReason.TOPOLOGY_PLACEMENT_FAILED: PendingReason.TOPOLOGY,
}
_STATUSES = {
    EntryStatus.ASSUMED: PendingReason.NOT_WAITING,
    EntryStatus.SKIPPED: PendingReason.CONTENTION,
    EntryStatus.GATED: PendingReason.GATED,
    EntryStatus.BLOCKED: PendingReason.PODS_READY,
    EntryStatus.EVICTED: PendingReason.TOPOLOGY,
}


def dominant_blocker(entry: CycleEntry) -> PendingReason:
    """Return the dominant reason code of an engine entry; `not-waiting` if it would be admitted."""
    if entry.status in _STATUSES:
        return _STATUSES[entry.status]
    if entry.requeue in (RequeueReason.PENDING_PREEMPTION, RequeueReason.PENDING_MIGRATION):
        return PendingReason.WAITING_FOR_VICTIMS
    if not entry.assignment.pod_sets:
        return _unfit(entry)
    codes = (code for result in entry.assignment.pod_sets for code in _obstacles(result))
    return _worst(codes, PendingReason.QUOTA)


def _unfit(entry: CycleEntry) -> PendingReason:
    """Return the code of a workload that was refused before its flavors were evaluated."""
    if entry.message == messages.FAILED_CHECKS:
        return PendingReason.CHECKS
    if entry.cause is GranularReason.SUSPENDED:
        return PendingReason.QUEUE_INACTIVE
    unknown = entry.message == messages.no_namespace(entry.request.workload.namespace)
    if unknown or entry.requeue is RequeueReason.NAMESPACE_MISMATCH:
        return PendingReason.NAMESPACE
    return PendingReason.INVALID


def _obstacles(result: PodSetResult) -> Iterator[PendingReason]:
    """Yield the code of each resource group of a pod set: that of its flavor that is closest to fitting."""
    if result.mode == FlavorAssignmentMode.FIT:
        return
    if result.failure:
        yield PendingReason.TOPOLOGY
    elif not result.choices:
        yield _unanswered(result)
    else:
        searched = [search for search in result.searches if not _fits(result, search)]
        yield from (_least(search.noted) for search in searched)
        if not searched:
            # There is quota for every resource, so only topology can be the reason.
            yield PendingReason.TOPOLOGY


def _unanswered(result: PodSetResult) -> PendingReason:
    """Return the code where no flavor was found, or no resource group covers the next resource."""
    last = result.searches[-1].noted if result.searches else ()
    covered = bool(last) and all(noted.mode == FlavorAssignmentMode.NO_FIT for noted in last)
    return _least(last) if covered else PendingReason.FLAVOR_MISMATCH


def _fits(result: PodSetResult, search: FlavorSearch) -> bool:
    choice = result.choices.get(search.resource)
    return choice is not None and any(
        n.flavor == choice.flavor and n.mode == FlavorAssignmentMode.FIT for n in search.noted
    )


def _least(noted: Iterable[FlavorResult]) -> PendingReason:
    """Return the code of the flavor that is closest to fitting."""
    codes = [cause(one) for one in noted if one.reasons]
    return min(codes, key=lambda code: SEVERITY[code], default=PendingReason.QUOTA)


def cause(noted: FlavorResult) -> PendingReason:
    """Return the reason code of a flavor that does not fit; `not-waiting` if it fits."""
    return (
        PendingReason.NOT_WAITING
        if noted.mode == FlavorAssignmentMode.FIT
        else _CAUSES.get(noted.cause, PendingReason.QUOTA)
    )


def _worst(codes: Iterable[PendingReason], otherwise: PendingReason) -> PendingReason:
    return max(codes, key=lambda code: SEVERITY[code], default=otherwise)


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
        """WorkloadPriorityClasses to choose from."""
        self.tries = self.cycles = 0
        """Number of trials, and of cycles that were run for them."""
        self._most_cycles = most_cycles

    def works(self, steps: Sequence[Step]) -> bool:
        """True if the workload reserves quota once all these changes are made, and keeps it. Raises TriedEnough.

        Most changes fail early: if the next cycle refuses the workload even as the head of its queue, the trial ends.
        So a change that works may be missed, but a change that does not work never passes.
        """
        fork = self.changed(steps)
        return _promises(fork, self.key) and self._reserves(fork) and self._stays(fork)

    def fails(self, steps: Sequence[Step]) -> bool:
        """True if the workload does not reserve quota with these changes; such a trial never ends early."""
        return not self._reserves(self.changed(steps))

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

    def _reserves(self, fork: AdmissionSimulator) -> bool:
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


FOR_GOOD = (PendingReason.EXCEEDS_MAX, PendingReason.QUOTA, PendingReason.FLAVOR_MISMATCH, PendingReason.TOPOLOGY)
"""Reasons that are permanent if they occur on the empty cluster."""
Refusal = tuple[PendingReason, str]
_PASSING = "node.kubernetes.io/"
"""Prefix of the node controller's taints, which are temporary."""


def repaired(node: Node) -> Node:
    """Return the node as healthy: ready, not cordoned, without the node controller's taints."""
    taints = tuple(taint for taint in node.taints if not taint.key.startswith(_PASSING))
    return replace(node, ready=True, unschedulable=False, taints=taints)


def all_nodes(snapshot: Snapshot, capacity: Capacity) -> tuple[Node, ...]:
    """Return all nodes as healthy if their number is fixed; empty if nodes can be provisioned or none are known."""
    fixed = isinstance(capacity, FixedCapacity) and not len(snapshot.node_pools)
    return tuple(map(repaired, snapshot.nodes.all())) if fixed else ()


class EmptyCluster:
    """The queues of a cluster and its nodes, all healthy, without any work. Mutates nothing."""

    def __init__(self, snapshot: Snapshot, config: KueueConfig, capacity: Capacity, namespaces: Iterable[str]) -> None:
        """`namespaces` are those of the work to try: manifests rarely contain them."""
        self._cluster = AdmissionSimulator(KueueSession(config), 0)
        self._topologies = bool(all_nodes(snapshot, capacity))
        """False if nodes can be provisioned or none are known: topology domains may be added."""
        self._known: dict[tuple[str, bytes], Refusal | None] = {}
        for name in sorted(set(namespaces)):
            self._cluster.apply(Namespace(name=name))
        for obj in snapshot.objects():
            match obj:
                case Workload() | Job() | Pod():
                    pass
                case Node():
                    self._cluster.apply(repaired(obj))
                case _:
                    self._cluster.apply(obj)
        # Compile the applied objects once for all forks.
        self._cluster.wake()

    def refusal(self, namespace: str, queue: str, pod_sets: Sequence[PodSet]) -> Refusal | None:
        """Return why Kueue would never admit such a workload, as code and message; None if it would, or if that is
        unknown.
        """
        key = f"{namespace}/{queue}", msgspec.msgpack.encode(pod_sets)
        if key not in self._known:
            self._known[key] = self._asked(namespace, queue, tuple(pod_sets))
        return self._known[key]

    def _asked(self, namespace: str, queue: str, pod_sets: tuple[PodSet, ...]) -> Refusal | None:
        alone = Workload(namespace=namespace, name="asked", uid="asked", queue=queue, created=0, pod_sets=pod_sets)
        cluster = self._cluster.fork()
        cluster.apply(alone)
        entry = examined(cluster, alone.key)
        code = dominant_blocker(entry) if entry is not None else None
        if entry is None or code not in FOR_GOOD or (code is PendingReason.TOPOLOGY and not self._topologies):
            return None
        return code, entry.message
