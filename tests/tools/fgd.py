"""Replay the paper's traces through six packing policies and compare with what it published (`make fgd`).

Every workload that the expectations name runs with each policy; allocated and fragment GPU % at 100 % and 130 % arrived
stand beside the published means over ten seeds. Pods and node orders come from Go's random numbers, so a run of ours
has the pods of the published run with that seed, in its order; only the policy `random` draws numbers of its own.
`--quick` runs the default workload, `--seeds N` the first N of the ten seeds; names of workloads and of policies choose
some. Where the machine is busy, seeds beyond the third are left out, so that it ends within `--minutes`; each line says
how many it has. GPUCONSOLE_TRACES names another folder of the same form.
"""

import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache, partial
from math import sqrt
from pathlib import Path
from random import Random
from statistics import fmean
from typing import NamedTuple, get_args

from gpuconsole.errors import SourceError
from gpuconsole.scheduling.kube.packing.policies import (
    Fragmentation,
    FreeCapacity,
    PodDemand,
    PolicyName,
    typical_pods_of,
)
from tests.support.shared_material import TRACES
from tests.tools.go_random import GoRandom
from tests.tools.packing_replay import GpuAmounts, Replay
from tests.tools.traces import read_nodes, read_pods, rows, stream

SEEDS = range(42, 52)
"""Those of the published runs."""
WATCHES = 10
"""Numbers that their scheduler draws before the order of the nodes, presumably one for each watch that it opens.

How many is inferred from the published run of `default` with seed 42: of all numbers up to 25 only ten gives both what
GPU packing and what FGD came to there; the other policies and seeds then come out, too.
"""
ARRIVED = (100, 130)
RATIO = 1.3
"""How much of the cluster's GPUs is asked for in the end."""
BAR, GOAL = 1.0, 0.3
"""Points from the published mean."""
PREFIX = "openb_pod_list_"
PROCESSES = 2
MINUTES = 15.0
FEWEST = 3
"""Seeds that are run, however long they take."""
POLICIES: tuple[PolicyName, ...] = get_args(PolicyName)
PUBLISHED = {
    "01-Random": "random",
    "02-DotProd": "dot-product",
    "03-GpuClustering": "gpu-clustering",
    "04-GpuPacking": "gpu-packing",
    "05-BestFit": "best-fit",
    "06-FGD": "fgd",
}
METRICS = ("alloc_pct", "frag_pct_of_total_gpus", "frag_pct_of_idle_gpus")
TITLES = ("allocated %", "fragment % of all", "fragment % of idle")

Key = tuple[str, str, str, int]
"""(metric, workload, policy, arrived %)."""


class Run(NamedTuple):
    """One workload through one policy with one seed."""

    workload: str
    policy: PolicyName
    seed: int


class Measured(NamedTuple):
    """What a run gave, and its CPU seconds."""

    run: Run
    values: dict[tuple[str, int], float]
    """(metric, arrived %) → %."""
    cpu: float


class Published(NamedTuple):
    """What ten seeds came to."""

    mean: float
    deviation: float


class Cell(NamedTuple):
    """One figure of the table."""

    ours: float
    published: float
    tolerance: float
    """What three standard errors of the difference come to, if the runs were drawn independently."""

    @property
    def difference(self) -> float:
        return self.ours - self.published

    @property
    def mark(self) -> str:
        away = abs(self.difference)
        if away > BAR:
            return "!" if away > self.tolerance else "~"
        return "·" if away > GOAL else " "


def expected(folder: Path) -> dict[Key, Published]:
    """What was published, by metric, workload, policy and arrived %."""
    path = folder / "fgd-expected" / "summary.csv.gz"
    return {
        (
            row["metric"],
            row["workload"].removeprefix(PREFIX),
            PUBLISHED[row["policy"]],
            int(row["arrived_pct"]),
        ): Published(float(row["mean"]), float(row["std"]))
        for _, row in rows(path, ("metric", "workload", "policy", "arrived_pct", "mean", "std"))
        if row["policy"] in PUBLISHED
    }


@lru_cache(maxsize=4)
def cluster(folder: Path) -> tuple[FreeCapacity, ...]:
    """The nodes with GPUs, by name."""
    nodes = read_nodes(trace(folder, "openb_node_list_gpu_node"))
    return tuple(node.room for node in sorted(nodes, key=lambda node: node.name))


def replay(folder: Path, run: Run) -> Measured:
    """Carry out one run as the paper does: set-up, order, tie rule, sampling."""
    rooms = cluster(folder)
    pods = sorted(read_pods(trace(folder, PREFIX + run.workload)), key=lambda pod: pod.name)
    draws = GoRandom(run.seed)
    draws.int63()  # Theirs writes one into its log.
    demands = stream(pods, sum(room.idle for room in rooms), RATIO, draws)
    for _ in range(WATCHES):
        draws.int63()
    prefixes = draws.permutation(len(rooms))
    order = sorted(range(len(rooms)), key=prefixes.__getitem__)
    begun = time.process_time()
    measure = Fragmentation(typical_pods_of(pod.demand for pod in pods))
    values = sample(Replay(rooms, run.policy, measure, order, Random(run.seed)), demands)
    return Measured(run, values, time.process_time() - begun)


def sample(replayed: Replay, demands: list[PodDemand]) -> dict[tuple[str, int], float]:
    """Means of the samples, one after each pod, whose arrived % rounds to the one asked for."""
    capacity = replayed.amounts.idle
    bins: dict[int, list[GpuAmounts]] = {}
    for amounts in replayed.run(demands):
        bins.setdefault(round(100 * amounts.arrived / capacity), []).append(amounts)
    values = {}
    for arrived in ARRIVED:
        # Large pods may step over a percent; then the percents beside it count (merge_alloc_discrete.py).
        found = bins.get(arrived) or [*bins.get(arrived - 1, ()), *bins.get(arrived + 1, ())]
        if found:
            values["alloc_pct", arrived] = fmean(100 * one.allocated / capacity for one in found)
            values["frag_pct_of_total_gpus", arrived] = fmean(100 * one.fragment / capacity for one in found)
            values["frag_pct_of_idle_gpus", arrived] = fmean(100 * one.fragment / max(one.idle, 1) for one in found)
    return values


def compare(measured: Iterable[Measured], published: Mapping[Key, Published]) -> dict[Key, Cell]:
    """Means over the seeds beside what was published."""
    ours: dict[Key, list[float]] = {}
    for one in measured:
        for (metric, arrived), value in one.values.items():
            ours.setdefault((metric, one.run.workload, one.run.policy, arrived), []).append(value)
    cells = {}
    for key, values in ours.items():
        if key in published:
            mean, deviation = published[key]
            tolerance = 3 * deviation * sqrt(1 / len(SEEDS) + 1 / len(values))
            cells[key] = Cell(fmean(values), mean, tolerance)
    return cells


def main(arguments: list[str]) -> int:
    """Print the table; 0 if everything is within the bar."""
    if TRACES is None:
        print(
            "make fgd: SKIPPED. ../shared/traces is not beside the project; GPUCONSOLE_TRACES may name another folder."
        )
        return 0
    try:
        published = expected(TRACES)
        known = sorted({workload for _, workload, _, _ in published})
        there = [workload for workload in known if trace(TRACES, PREFIX + workload).exists()]
        for workload in known:
            if workload not in there:
                print(f"make fgd: {workload} SKIPPED, there is no {trace(TRACES, PREFIX + workload)}", file=sys.stderr)
        return _report(TRACES, _options(arguments), there, published)
    except (SourceError, OSError, ValueError, KeyError) as error:
        print(f"make fgd: {error}", file=sys.stderr)
        return 2


def _options(arguments: list[str]) -> Namespace:
    parser = ArgumentParser(prog="make fgd", description="Compare packing policies with what FGD's authors published.")
    parser.add_argument("names", nargs="*", help="workloads and policies; all of them if none is named")
    parser.add_argument("--quick", action="store_true", help="the default workload only")
    parser.add_argument("--seeds", type=int, choices=range(1, len(SEEDS) + 1), default=len(SEEDS), metavar="N")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="how long it may take (%(default)s)")
    return parser.parse_args(arguments)


def _groups(options: Namespace, known: list[str]) -> list[tuple[str, PolicyName]]:
    wrong = [name for name in options.names if name not in known and name not in POLICIES]
    if wrong:
        raise ValueError(
            f"{wrong[0]!r} is neither a workload ({', '.join(known)}) nor a policy ({', '.join(POLICIES)})"
        )
    workloads = [name for name in known if name in options.names] or (["default"] if options.quick else known)
    policies = [name for name in POLICIES if name in options.names] or POLICIES
    return [(workload, policy) for workload in workloads for policy in policies]


def _report(folder: Path, options: Namespace, known: list[str], published: Mapping[Key, Published]) -> int:
    groups = _groups(options, known)
    print(f"arrived {' and '.join(f'{arrived} %' for arrived in ARRIVED)}; ours, published, difference\n")
    titles = [f"{title}, at {arrived} %" for arrived in ARRIVED for title in TITLES]
    print(f"{'':29}{''.join(f'{title:^26}' for title in titles)}")
    done: list[Measured] = []
    cells: dict[Key, Cell] = {}
    begun = time.perf_counter()
    with ProcessPoolExecutor(PROCESSES) as pool:
        for number, (workload, policy) in enumerate(groups):
            spent = time.perf_counter() - begun
            share = (60 * options.minutes - spent) / (len(groups) - number)
            seeds = SEEDS[: affordable(share, spent / len(done) if done else 0.0, options.seeds)]
            latest = list(pool.map(partial(replay, folder), [Run(workload, policy, seed) for seed in seeds]))
            found = compare(latest, published)
            done += latest
            cells.update(found)
            print(_line(workload, policy, found, latest), flush=True)
    cpu, wall = sum(one.cpu for one in done), time.perf_counter() - begun
    print(f"\n{len(done)} runs, {wall:.0f} s on {PROCESSES} processes, {cpu:.0f} CPU s")
    return _summary(cells)


def affordable(share: float, pace: float, asked: int) -> int:
    """How many seeds to run in so many seconds, if each takes `pace`: three at least, if so many are asked for."""
    return asked if pace * asked <= share else max(min(asked, FEWEST), int(share / pace))


def _line(workload: str, policy: str, cells: Mapping[Key, Cell], runs: list[Measured]) -> str:
    text = ""
    for arrived in ARRIVED:
        for metric in METRICS:
            cell = cells.get((metric, workload, policy, arrived))
            text += (
                f"{cell.ours:8.2f}{cell.published:8.2f}{cell.difference:+7.2f} {cell.mark} " if cell else f"{'–':>26}"
            )
    return f"{workload:13}{policy:16}{text}{len(runs):4} seeds, {fmean(one.cpu for one in runs):.1f} CPU s each"


def _summary(cells: Mapping[Key, Cell]) -> int:
    print(f"{len(cells)} figures; · beyond {GOAL} points, ~ beyond {BAR:g} point but not beyond chance, ! beyond both")
    for metric, title in zip(METRICS, TITLES, strict=True):
        ranked = sorted((abs(cell.difference), key) for key, cell in cells.items() if key[0] == metric)
        if not ranked:
            continue
        worst, (_, workload, policy, arrived) = ranked[-1]
        within = sum(difference <= GOAL for difference, _ in ranked)
        beyond = sum(difference > BAR for difference, _ in ranked)
        where = f"{worst:.2f} ({workload}, {policy}, at {arrived} %)"
        print(f"  {title:18} {len(ranked):4} figures, {within:4} within {GOAL}, {beyond} beyond {BAR:g}; worst {where}")
    return 1 if any(cell.mark == "!" for cell in cells.values()) else 0


def trace(folder: Path, name: str) -> Path:
    """The list of this name, compressed or not."""
    place = folder / "alibaba-gpu-v2023"
    plain = place / f"{name}.csv"
    return plain if plain.exists() else place / f"{name}.csv.gz"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
