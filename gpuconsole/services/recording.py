"""The recording of a cluster: costs, time series and change log, from the events of the loop.

The loop passes on the events of each tick. The recorder's thread evaluates them before each of its writes, so that the
loop is not delayed, and history events, costs, samples and changes of one second are written together.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from gpuconsole.insight.cost.allocation import CostAllocator, CostLabels
from gpuconsole.insight.series import SeriesSampler
from gpuconsole.model.change_log import ChangeLogWriter
from gpuconsole.model.clock import MINUTE, Span, Time
from gpuconsole.model.events import Applied, Deleted, Event, HistoryEvent
from gpuconsole.model.objects import TABLES
from gpuconsole.model.prices import Prices
from gpuconsole.model.snapshot import EVERYTHING, Snapshot, Visibility
from gpuconsole.model.state import ClusterState
from gpuconsole.model.telemetry import NodeTelemetry
from gpuconsole.model.text import clean
from gpuconsole.sim.policy import SimPolicy
from gpuconsole.store.recorder import Recorder

LOG = logging.getLogger(__name__)
MOST_SAMPLES = 5
"""Maximum samples of one write: a fast simulation, which passes more minutes in a second, is sampled less often."""
MANY_ROWS = 1_000
"""Number of cost rows above which they are written once a minute, not at each write, as 10,000 take 60 ms."""
TELEMETRY = TABLES[NodeTelemetry]


class HistoryPipeline:
    """Turns the events of one cluster into costs, samples and changes, and passes them to the recorder. Mutates.

    `add` is called by the loop, `prepare` by the recorder's thread.
    """

    def __init__(self, recorder: Recorder, prices: Prices, labels: CostLabels, policy: Callable[[], SimPolicy]) -> None:
        """`policy` returns the settings of the schedulers, from which analyses of a past moment continue."""
        self._recorder = recorder
        self._prices = prices
        self._labels = labels
        self._policy = policy
        self._waiting: list[Event] = []
        self._now: Time = 0
        self._seen: Visibility = EVERYTHING
        self._lock = threading.Lock()
        self._consumers: _Consumers | None = None
        self._recorded_policy: SimPolicy | None = None
        self._finishing = False
        self._rows_drained = 0
        self._drained: Time = 0
        self._begun: Time = 0
        """Time from which on events are counted; a live cluster reports older ones, which an earlier session had."""
        self._sampled: Time = 0
        self.failed = ""
        """Why costs, samples and changes are no longer recorded; empty if they are."""
        recorder.before_writes(self.prepare)

    def add(self, events: Sequence[Event], now: Time, seen: Visibility) -> None:
        """Queue the events of a tick that ended at `now`; does not block."""
        if self.failed:
            return
        with self._lock:
            self._waiting += events
            self._now, self._seen = now, seen

    def finish(self) -> None:
        """Let the next write, the last one, have all costs and counts up to its time."""
        self._finishing = True

    def prepare(self) -> None:
        """Evaluate the queued events and pass the results to the recorder. Never raises: see `failed`."""
        with self._lock:
            events, self._waiting = self._waiting, []
            now, seen = self._now, self._seen
        if self.failed or not now:
            return
        try:
            self._evaluate(events, now, seen)
        except Exception as error:
            LOG.exception("Costs, time series and changes are no longer recorded")
            self.failed = clean(f"costs and time travel: {type(error).__name__}: {error}")

    def _evaluate(self, events: Sequence[Event], now: Time, seen: Visibility) -> None:
        is_first = self._consumers is None
        consumers = self._consumers if self._consumers is not None else self._begin(events, now)
        costs, sampler, changes = consumers
        state = costs.state
        state.seen = seen
        policy = self._policy()
        if policy is not self._recorded_policy:
            # A live cluster's settings are read later than its first objects.
            changes.policy = msgspec.json.encode(replace(policy, prices=self._prices))
            self._recorded_policy = policy
        interval = _interval(self._sampled, now)
        # After a faster time, the minutes up to the last write are over: their states are no longer known.
        due = max(self._sampled + interval, -(-state.time // MINUTE) * MINUTE)
        reached = state.time
        for event in events:
            # A live cluster reports some history events later than their time.
            reached = max(reached, event.time)
            while due <= reached:
                self._sample(state, sampler, due)
                due += interval
            costs.note(event)
            if event.time >= self._begun:
                sampler.note(event)
        while due <= now:
            self._sample(state, sampler, due)
            due += interval
        state.time = max(reached, now)
        if self._finishing and self._sampled > self._begun:
            # A session that ends within its first minute may not have read the whole cluster.
            self._sample(state, sampler, state.time)
        if self._finishing or self._rows_drained <= MANY_ROWS or state.time - self._drained >= MINUTE:
            costs.advance(state.time)
            rows = costs.drain()
            self._rows_drained, self._drained = len(rows), state.time
            self._recorder.add_costs(rows)
        recorded = [event for event in events if not _is_telemetry(event)]
        if is_first and state.time - self._begun >= MINUTE:
            # A fast simulation passes many minutes before the first write; its start can be shown, too.
            initial = [event for event in recorded if event.time <= self._begun]
            changes.add(initial, time=self._begun, seen=seen)
            self._recorder.add_changes(*changes.flush())
            recorded = [event for event in recorded if event.time > self._begun]
        changes.add(recorded, time=state.time, seen=seen)
        self._recorder.add_changes(*changes.flush())

    def _begin(self, events: Sequence[Event], now: Time) -> "_Consumers":
        """Start with an empty cluster: the first events of a backend are all existing objects."""
        time = min((event.time for event in events if not isinstance(event, HistoryEvent)), default=now)
        self._begun = time
        self._consumers = _Consumers(
            CostAllocator(Snapshot(time, 0, {}, ()), self._prices, self._labels),
            SeriesSampler(),
            ChangeLogWriter(ClusterState()),
        )
        self._sampled = time // MINUTE * MINUTE
        return self._consumers

    def _sample(self, state: ClusterState, sampler: SeriesSampler, time: Time) -> None:
        state.time = max(state.time, time)
        replaces = time // MINUTE == self._sampled // MINUTE
        self._recorder.add_samples(sampler.sample(state.freeze(), self._prices, replaces=replaces))
        self._sampled = time


class _Consumers(NamedTuple):
    """What evaluates the events of a recording."""

    costs: CostAllocator
    """Its state is also the one that is sampled."""
    sampler: SeriesSampler
    changes: ChangeLogWriter


def _interval(sampled: Time, now: Time) -> Span:
    """Time between two samples of a write: a minute, or more minutes if too many have passed."""
    return max(1, -(-(now - sampled) // MINUTE // MOST_SAMPLES)) * MINUTE


def _is_telemetry(event: Event) -> bool:
    """True for GPU metrics, which are most changes of a cluster: of them, only the time series are recorded."""
    match event:
        case Applied():
            return isinstance(event.object, NodeTelemetry)
        case Deleted():
            return event.table == TELEMETRY
        case _:
            return False
