"""One pass over the workloads: who holds how much, and how many wait, for every queue at once."""

from collections import defaultdict
from collections.abc import Mapping

from msgspec import Struct

from gpuconsole.insight.demand import FlavorResource, held, waiting_since, wanted_gpus
from gpuconsole.insight.once import once
from gpuconsole.model.clock import Time
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload


class Count(Struct):
    """What one queue has. Filled while the pass runs, read-only after it."""

    pending: int = 0
    """Wait for quota, parked ones included; stopped ones are not counted."""
    parked: int = 0
    reserved: int = 0
    """Hold quota, running ones included."""
    running: int = 0
    """Admitted: their pods may run."""
    pending_gpus: int = 0
    oldest: Time | None = None
    """When the one that waits longest began to wait."""

    def wait(self, workload: Workload, since: Time, gpus: int) -> None:
        self.pending += 1
        self.parked += workload.parked
        self.pending_gpus += gpus
        if self.oldest is None or since < self.oldest:
            self.oldest = since

    def hold(self, running: bool) -> None:
        self.reserved += 1
        self.running += running

    def add(self, other: "Count") -> None:
        """Roll another queue's counts up into this one."""
        self.pending += other.pending
        self.parked += other.parked
        self.reserved += other.reserved
        self.running += other.running
        self.pending_gpus += other.pending_gpus
        if other.oldest is not None and (self.oldest is None or other.oldest < self.oldest):
            self.oldest = other.oldest


class Tally(Struct, frozen=True):
    """The counts by ClusterQueue name and by LocalQueue key, and the usage (quota held) of each."""

    cluster_queues: Mapping[str, Count]
    local_queues: Mapping[str, Count]
    usage: Mapping[str, Mapping[FlavorResource, int]]
    local_usage: Mapping[str, Mapping[FlavorResource, int]]


@once("workloads", "local_queues")
def tally(snapshot: Snapshot) -> Tally:
    """Count every workload once. Statuses are not trusted: everything is added up from the workloads themselves.

    A workload that holds quota counts for the ClusterQueue of its admission, a waiting one for the ClusterQueue of its
    LocalQueue. Usage follows Kueue's status `flavorsReservation`: what holds quota, admitted or not, less the pods
    that are done (reclaimablePods).
    """
    queues: dict[str, Count] = defaultdict(Count)
    local: dict[str, Count] = defaultdict(Count)
    usage: dict[str, dict[FlavorResource, int]] = defaultdict(dict)
    local_usage: dict[str, dict[FlavorResource, int]] = defaultdict(dict)
    target = {queue.key: queue.cluster_queue for queue in snapshot.local_queues.all()}
    for workload in snapshot.workloads.all():
        true = [condition.type for condition in workload.conditions if condition.status]
        if "Finished" in true:
            continue
        key = workload.local_queue
        if "QuotaReserved" in true and workload.admission is not None:
            name = workload.admission.cluster_queue
            running = "Admitted" in true
            queues[name].hold(running)
            local[key].hold(running)
            _add_held(workload, usage[name], local_usage[key])
        elif workload.active:
            since, gpus = waiting_since(workload), wanted_gpus(workload)
            local[key].wait(workload, since, gpus)
            if key in target:
                queues[target[key]].wait(workload, since, gpus)
    return Tally(queues, local, usage, local_usage)


def _add_held(workload: Workload, *totals: dict[FlavorResource, int]) -> None:
    for pair, amount in held(workload):
        for total in totals:
            total[pair] = total.get(pair, 0) + amount
