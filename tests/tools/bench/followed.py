"""What-ifs on a big cluster that others run and that changes all the time, as the worker process answers them.

The first answer is asked for at once after a change, and when the worker had the time to get ready; both with the time
that it takes to hear what changed.
"""

import gc
import random
import statistics
import time
from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from gpuconsole.garbage import uncollected
from gpuconsole.insight.whatif.whatif import what_if_steps
from gpuconsole.model.clock import HOUR, SECOND
from gpuconsole.model.commands import Command, Drain
from gpuconsole.model.events import Applied, Event
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.state import ClusterState
from gpuconsole.model.workloads import Workload
from gpuconsole.sim.policy import SimPolicy
from gpuconsole.workers.protocol import ENCODER, UpdateSnapshot
from gpuconsole.workers.replica import LiveReplica
from tests.tools.bench.forks import simulation
from tests.tools.bench.report import Report
from tests.tools.bench.whatifs import FIRST

SIZES = ((10_000, 1_000), (100_000, 5_000))
CHANGES = 200
"""Workloads that change between two questions."""


def followed(report: Report) -> None:
    """The first answer on a cluster that is followed."""
    for workloads, nodes in SIZES:
        made = simulation(workloads, nodes)
        first, news = _as_others_show_it(made.snapshot()), random.Random(7)
        policy, command = made.policy, (Drain(next(iter(first.nodes))),)
        del made
        mirror = LiveReplica()
        _see(mirror, [Applied(first.time, thing) for thing in first.objects()], first.time, policy, anew=True)
        gc.collect()
        gc.freeze()
        with uncollected():
            title = f"what-if on a followed cluster, {workloads:,} workloads, {nodes:,} nodes"
            report.seconds(f"{title}: the first one of all", _asked(mirror, command))
            at_once, ready = [], []
            pieces: list[float] = []
            for turn in range(1, 6):
                now = first.time + 20 * turn * SECOND
                at_once.append(_changed(mirror, news, now, policy) + _asked(mirror, command))
                changed = _changed(mirror, news, now + 10 * SECOND, policy)
                pieces += _made_ready(mirror)
                ready.append(changed + _asked(mirror, command))
            report.time(f"  next cycle, {CHANGES} workloads having changed just now", statistics.median(at_once))
            bar = FIRST if workloads == SIZES[-1][0] else None
            report.time("  next cycle, got ready", statistics.median(ready), bar=bar)
            report.seconds("  getting ready", sum(pieces) / 5, f"longest piece {max(pieces) * 1000:.0f} ms")
        gc.unfreeze()


def _as_others_show_it(snapshot: Snapshot) -> Snapshot:
    """Nobody but a simulation tells who is parked."""
    state = ClusterState(snapshot.time)
    for thing in snapshot.objects():
        state.apply(
            Applied(snapshot.time, replace(thing, inadmissible=False) if isinstance(thing, Workload) else thing)
        )
    return state.freeze()


def _see(mirror: LiveReplica, events: list[Event], now: int, policy: SimPolicy, *, anew: bool = False) -> None:
    mirror.see(UpdateSnapshot(anew, now, (ENCODER.encode(events),), msgspec.json.encode(policy)))


def _changed(mirror: LiveReplica, news: random.Random, now: int, policy: SimPolicy) -> float:
    """Seconds of CPU that it takes to hear of changes."""
    rows = news.sample([*mirror.snapshot.workloads.all()], CHANGES)
    events: list[Event] = [Applied(now, replace(row, priority=row.priority + 1)) for row in rows]
    began = time.process_time()
    _see(mirror, events, now, policy)
    return time.process_time() - began


def _asked(mirror: LiveReplica, command: tuple[Command, ...]) -> float:
    """Seconds of CPU to the first answer."""
    began = time.process_time()
    base = mirror.base(frozenset())
    next(what_if_steps(base.simulation, command, HOUR, found=base.completed))
    return time.process_time() - began


def _made_ready(mirror: LiveReplica) -> Iterator[float]:
    """Seconds of CPU of each piece of getting ready, as when a what-if is opened."""
    mirror.expect()
    while True:
        began = time.process_time()
        goes_on = mirror.prepare_step()
        yield time.process_time() - began
        if not goes_on:
            return
