"""Kueue's own performance loads, run to completion in a bare session with virtual time."""

import gc

from gpuconsole.model.clock import SECOND, Span
from tests.tools.bench.drain import Drain
from tests.tools.bench.kueue_loads import BASELINE, LOADS, Load, arrivals, objects
from tests.tools.bench.report import Report, cpu

PACE: Span = SECOND // 43
"""What an API server takes for an admission: Kueue's tests reach 42.4 to 42.7 a second, whatever the load."""
TOLERANCE = 0.2
IN_PROCESS = "Kueue's own Go code in process does 3,300 to 7,400 on small fixtures, 43 with an API server"


def completion(report: Report) -> None:
    """CPU seconds with wake-ups batched by 1 s, as Kueue has them, and virtual times in three settings."""
    for load in LOADS:
        _complete(report, load)


def _complete(report: Report, load: Load) -> None:
    print(f"Kueue's load {load.name}: {load.size:,} workloads, {load.cohorts * load.queues:,} ClusterQueues")
    times = sorted(_run(load, batch=SECOND)[1] for _ in range(report.runs - 1))
    batched, once = _run(load, batch=SECOND)
    times = sorted([*times, once])
    taken = times[len(times) // 2]
    report.seconds(
        f"  to completion, wake-ups batched by 1 s, median of {len(times)}", taken, _goal(load), bar=load.bar
    )
    if load is BASELINE:
        report.rate("  admissions per CPU-second", batched.admissions / taken, IN_PROCESS)
    report.fact("  virtual time, wake-ups batched by 1 s", _told(batched))
    prompt, spent = _run(load)
    report.seconds("  to completion, wake-ups at once", spent, "once")
    report.fact(
        "  virtual time, wake-ups at once", _told(prompt), right=_seconds(prompt) <= load.floor * (1 + TOLERANCE)
    )
    print(f"    the quota alone imposes {load.floor:g} s")
    paced, spent = _run(load, pace=PACE)
    report.seconds("  to completion, an admission every 1/43 s", spent, "once")
    near = abs(_seconds(paced) - load.kueue) <= load.kueue * TOLERANCE
    report.fact("  virtual time, an admission every 1/43 s", _told(paced), right=near)
    print(f"    Kueue with an API server took {load.kueue:g} s")


def _run(load: Load, *, batch: Span = 0, pace: Span = 0) -> tuple[Drain, float]:
    """A completed run, and the CPU seconds that it took; making the workloads does not count."""
    things, coming = objects(load), arrivals(load)
    gc.collect()
    gc.freeze()
    drain = Drain(things, coming, batch=batch, pace=pace)
    taken = cpu(drain.run)
    gc.unfreeze()
    if drain.left:
        raise AssertionError(f"{load.name}: {drain.left} workloads did not end")
    return drain, taken


def _seconds(drain: Drain) -> float:
    return drain.elapsed / SECOND


def _goal(load: Load) -> str:
    return f"goal {load.goal:g} s"


def _told(drain: Drain) -> str:
    waits = " ".join(f"{kind} {wait / SECOND:.1f} s" for kind, wait in drain.waits().items())
    return (
        f"{_seconds(drain):>10.1f} s   {drain.admissions:,} admissions, {drain.evictions:,} evictions, "
        f"{drain.cycles:,} cycles; mean wait {waits}"
    )
