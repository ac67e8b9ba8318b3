"""What all GPUs of a cluster do, added up from the GPU map: only rows that changed since the last sum are counted."""

from collections import Counter

from msgspec import Struct

from gpuconsole.insight.gpumap import GpuRow, GpuState, gpu_rows
from gpuconsole.insight.once import once
from gpuconsole.model.scan import changes
from gpuconsole.model.snapshot import Snapshot


class GpuTotals(Struct, frozen=True, kw_only=True):
    """All GPUs of the cluster by what they do; the states sum up to `total`."""

    total: int
    in_use: int
    borrowed: int
    """Of those in use: on quota that their queue borrows."""
    idle: int
    held: int
    """Do no work, but are not free: incomplete gangs, nominated preemptors, cordoned nodes."""
    faulty: int
    unknown: int = 0
    """No pod is seen to have them, but not every pod is seen."""
    largest_gang: int
    """GPUs of the largest gang of one GPU type that fits now, if its pods may be spread as they come."""
    largest_gang_nodes: int
    """On how many nodes it would lie."""
    largest_gang_type: str


class Sums:
    """What rows of the map add up to. Mutates by `count` as long as nobody else has it."""

    def __init__(self) -> None:
        self.states: Counter[GpuState] = Counter()
        self.free: dict[str, Counter[int]] = {}
        """GPU type → idle GPUs of a node → on how many nodes there are so many."""

    def copy(self) -> "Sums":
        twin = Sums()
        twin.states = self.states.copy()
        twin.free = {kind: nodes.copy() for kind, nodes in self.free.items()}
        return twin

    def count(self, row: GpuRow, sign: int) -> None:
        """Add a row (1), or take it out (-1)."""
        for state, number in row.counts.items():
            self.states[state] += sign * number
        idle = row.counts[GpuState.IDLE]
        if idle:
            self.free.setdefault(row.gpu_type, Counter())[idle] += sign

    def largest_gang(self) -> tuple[int, int, str]:
        """Idle GPUs, the nodes that they are on, and the type, for the type that has most of them."""
        best = (0, 0, "")
        for kind in sorted(self.free):
            gpus = sum(idle * number for idle, number in self.free[kind].items())
            if gpus > best[0]:
                best = gpus, self.free[kind].total(), kind
        return best


_kept: list[tuple[tuple[GpuRow, ...], Sums]] = []


def _sums(rows: tuple[GpuRow, ...]) -> Sums:
    """The sums of these rows, by what is different from those before."""
    # Replaced as one tuple: threads may at worst do the same work twice.
    before, sums = _kept[0] if _kept else ((), Sums())
    sums = sums.copy()
    gone, come = changes(before, rows)
    for row in gone:
        sums.count(row, -1)
    for row in come:
        sums.count(row, 1)
    _kept[:] = [(rows, sums)]
    return sums


@once("nodes", "pods", "workloads", "local_queues", "cluster_queues", "pod_groups", "kai_pod_groups", "seen")
def gpu_totals(snapshot: Snapshot) -> GpuTotals:
    """Count the cells of the GPU map."""
    rows = gpu_rows(snapshot)
    sums = _sums(rows)
    states = sums.states
    gpus, nodes, kind = sums.largest_gang()
    return GpuTotals(
        total=states.total(),
        in_use=states[GpuState.OWN] + states[GpuState.BORROWED],
        borrowed=states[GpuState.BORROWED],
        idle=states[GpuState.IDLE],
        held=states[GpuState.HELD],
        faulty=states[GpuState.FAULT],
        unknown=states[GpuState.UNKNOWN],
        largest_gang=gpus,
        largest_gang_nodes=nodes,
        largest_gang_type=kind,
    )
