"""FGD's trace through the six packing policies: 8,152 pods on 1,213 nodes, or pods and nodes like them without it."""

from random import Random

from gpuconsole.scheduling.kube.packing.policies import (
    MILLI,
    Fragmentation,
    FreeCapacity,
    PodDemand,
    PolicyName,
    typical_pods_of,
)
from tests.support.shared_material import TRACES
from tests.tools import fgd
from tests.tools.bench.report import Report, median
from tests.tools.packing_replay import Replay
from tests.tools.traces import read_pods

PODS, NODES = 8_152, 1_213
BARS = {"fgd": 12.0}
BAR = 8.0
"""Seconds for a policy without a bar of its own."""
SHAPES = ((0, 0), (1, 150), (1, 220), (1, 460), (1, 500), (1, 810), (1, 1000), (1, 1000), (2, 1000), (8, 1000))


def packing(report: Report) -> None:
    """One run through each policy, typical pods and all; every pod is looked at."""
    rooms, demands = _load()
    draws = Random(42)
    draws.shuffle(demands)
    order = draws.sample(range(len(rooms)), len(rooms))
    for policy in fgd.POLICIES:
        placed: set[int] = set()

        def run(policy: PolicyName = policy, placed: set[int] = placed) -> None:
            replay = Replay(rooms, policy, Fragmentation(typical_pods_of(demands)), order, Random(42))
            placed.add(sum(replay.place(demand) is not None for demand in demands))

        seconds = median(run, report.runs)
        name = f"{policy}: {len(demands):,} pods on {len(rooms):,} nodes ({min(placed):,} placed)"
        report.seconds(name, seconds, bar=BARS.get(policy, BAR))


def _load() -> tuple[tuple[FreeCapacity, ...], list[PodDemand]]:
    if TRACES is not None:
        pods = read_pods(fgd.trace(TRACES, f"{fgd.PREFIX}default"))
        return fgd.cluster(TRACES), [pod.demand for pod in pods]
    draws = Random(42)
    rooms = tuple(FreeCapacity(96_000, 2**19, (MILLI,) * draws.choice((2, 4, 8, 8)), "T4") for _ in range(NODES))
    return rooms, [_demand(draws) for _ in range(PODS)]


def _demand(draws: Random) -> PodDemand:
    gpus, milli = draws.choice(SHAPES)
    return PodDemand(cpu=draws.choice((1, 2, 4, 6, 8, 12)) * 1000, memory=draws.choice((8, 16)), gpus=gpus, milli=milli)
