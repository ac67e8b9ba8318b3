"""What-ifs on a big cluster: the first answer, the hour ahead, and what of the two an operator waits for.

The hour is measured by the clock on the wall: its two futures run beside each other, as for the command.
"""

import gc
import time
from collections.abc import Iterator

from msgspec.structs import replace

from gpuconsole.garbage import uncollected
from gpuconsole.insight.whatif.whatif import WhatIf, prepare, what_if_steps
from gpuconsole.model.clock import HOUR
from gpuconsole.model.commands import Command as Order
from gpuconsole.model.commands import Drain, SetPriority, SetQuota, Submit
from gpuconsole.model.cooperative import Progress, run_to_end
from gpuconsole.model.resources import GPU
from gpuconsole.sim.engine import Simulation
from gpuconsole.workers.forked_future import fork_future
from tests.tools import load
from tests.tools.bench.forks import simulation
from tests.tools.bench.report import Report, cpu

SIZES = ((10_000, 1_000), (100_000, 5_000))
FAR = ("submit", "quota")
"""Followed for an hour. The first begins with nothing known; of the other nothing is known that holds by its quotas."""
FIRST, AHEAD = 0.3, 5.0
"""Seconds that the first answer and the hour ahead may take."""


def what_ifs(report: Report) -> None:
    """A submission, a drain, a priority and a quota on made-up clusters, as the worker process answers them."""
    for workloads, nodes in SIZES:
        made = simulation(workloads, nodes)
        run_to_end(prepare(made))
        gc.collect()
        gc.freeze()
        largest = workloads == SIZES[-1][0]
        for name, orders in _questions(made).items():
            trial = what_if_steps(made, orders, HOUR)
            first = cpu(lambda trial=trial: next(trial))  # type: ignore[misc]
            title = f"what-if, {name}, {workloads:,} workloads, {nodes:,} nodes"
            report.time(f"{title}: next cycle", first, bar=FIRST if largest else None)
        for name in FAR:
            _ahead(report, made, name, workloads, nodes)
        gc.unfreeze()


def _ahead(report: Report, made: Simulation, name: str, workloads: int, nodes: int) -> None:
    """One of the questions to the horizon, or as far as one is patient."""
    patience = 20 * AHEAD
    began, worked = time.perf_counter(), time.process_time()
    reached, slowest = 0, 0.0
    with uncollected():
        for look, seconds in _timed(what_if_steps(made, _questions(made)[name], HOUR, elsewhere=fork_future)):
            reached, slowest = look.done, max(slowest, seconds)
            if time.perf_counter() - began > patience:
                break
    spent, worked = time.perf_counter() - began, time.process_time() - worked
    bar = AHEAD if workloads == SIZES[-1][0] else None
    note = f"{worked:.1f} s of CPU in this process" if reached == HOUR else f"gave up at +{reached / HOUR * 60:.0f} min"
    report.seconds(f"what-if, {name}, {workloads:,} workloads, {nodes:,} nodes: an hour ahead", spent, note, bar=bar)
    report.seconds("  longest time between two looks, at which it can be given up", slowest)


def _timed(trial: Iterator[Progress[WhatIf]]) -> Iterator[tuple[Progress[WhatIf], float]]:
    while True:
        before = time.perf_counter()
        look = next(trial, None)
        if look is None:
            return
        yield look, time.perf_counter() - before


def _questions(made: Simulation) -> dict[str, tuple[Order, ...]]:
    snapshot = made.snapshot()
    job = replace(load.workloads(1, 100)[0], name="asked", uid="zz-asked", created=made.now, priority=200)
    waits = next(w for w in snapshot.workloads.all() if not w.reserved)
    queue = next(iter(snapshot.cluster_queues.all()))
    (flavor, _), quota = next((pair, q) for pair, q in queue.quotas().items() if pair[1] == GPU)
    return {
        "submit": (Submit((job,)),),
        "drain": (Drain(next(iter(snapshot.nodes))),),
        "priority": (SetPriority(waits.key, 1000),),
        "quota": (SetQuota(queue.name, flavor, GPU, quota.nominal + 64),),
    }
