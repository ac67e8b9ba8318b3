"""Laws of costs over time in random simulations: every USD of every node is booked once, whatever happens to it."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.insight.cost.allocation import CostAllocator, CostHour, CostKind
from gpuconsole.insight.cost.rates import By, cost_report, node_price
from gpuconsole.insight.cost.report import CostBy, cost_summary
from gpuconsole.model.autoscaling import NodeGroup
from gpuconsole.model.clock import HOUR, MINUTE, SECOND, Time
from gpuconsole.model.cluster import Node
from gpuconsole.model.commands import AddNodes, Delete, Divide
from gpuconsole.model.events import Applied, Deleted, Event, HistoryEvent, HistoryEventKind
from gpuconsole.model.prices import Prices
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.state import ClusterState
from gpuconsole.sim.telemetry import simulate_metrics
from tests.insight.test_partition_costs import partitioned
from tests.support.engine_clusters import MAKES, NUMBERS, about, deeds, fresh

PRICES = Prices(gpu_hour={"a100-80gb": 2.21}, other=0.7, spot=0.35)
AMOUNTS = CostHour.__struct_fields__[2:]
SPANS = st.sampled_from([0, SECOND // 3, 20 * SECOND, 90 * SECOND, 5 * MINUTE, 16 * MINUTE, 70 * MINUTE])
law = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


class Life(Struct, frozen=True):
    """The events of a simulation, from an empty cluster on, with telemetry that becomes stale now and then."""

    events: list[Event]
    begin: Time
    end: Time
    last: Snapshot

    def __repr__(self) -> str:
        return f"Life({len(self.events)} events)"

    def until(self, time: Time) -> list[Event]:
        """The events up to a time."""
        return [event for event in self.events if event.time <= time]


@st.composite
def lives(draw: st.DrawFn) -> Life:
    """A random cluster with jobs, preemptions, drains, failures, new and deleted nodes, and MIG reconfiguration."""
    make = draw(MAKES)
    nodes = st.one_of(
        st.builds(about, st.just("nodes"), NUMBERS, st.just(AddNodes)),
        st.builds(about, st.just("nodes"), NUMBERS, st.just(lambda name: Delete("nodes", name))),
        st.builds(about, st.just("nodes"), NUMBERS, st.just(lambda name: Divide(name, "all-1g.10gb"))),
        st.builds(about, st.just("nodes"), NUMBERS, st.just(lambda name: Divide(name, "all-disabled"))),
    )
    anything = st.one_of(deeds(make), deeds(make), nodes)
    life = draw(st.lists(st.tuples(SPANS, anything, st.booleans()), min_size=1, max_size=10))
    simulation = fresh(make)
    events: list[Event] = []
    begin = simulation.now
    for span, deed, measured in [*life, (HOUR, lambda simulation: None, False)]:
        simulation.advance(simulation.now + span)
        deed(simulation)
        events += simulation.drain()
        if measured:
            now = simulation.snapshot()
            events += [Applied(now.time, replace(one, lasts=4 * MINUTE)) for one in simulate_metrics(now, 7)]
    return Life(events, begin, simulation.now, simulation.snapshot())


def booked(events: Sequence[Event], begin: Time, end: Time, drains: Sequence[Time] = ()) -> list[CostHour]:
    """The rows of an allocator that starts with an empty cluster."""
    allocator = CostAllocator(Snapshot(begin, 0, {}, ()), PRICES)
    left = sorted(drains)
    rows: list[CostHour] = []
    for event in events:
        while left and left[0] <= event.time:
            allocator.advance(left.pop(0))
            rows += allocator.drain()
        allocator.note(event)
    allocator.advance(end)
    return [*rows, *allocator.drain()]


def summed(rows: Sequence[CostHour]) -> dict[tuple[object, Time], list[float]]:
    found: dict[tuple[object, Time], list[float]] = defaultdict(lambda: [0.0] * len(AMOUNTS))
    for row in rows:
        sums = found[row.owner, row.hour]
        for place, name in enumerate(AMOUNTS):
            sums[place] += getattr(row, name)
    return {key: sums for key, sums in found.items() if any(abs(one) > 1e-9 for one in sums)}


def states(events: Sequence[Event], end: Time) -> Iterator[tuple[Snapshot, float]]:
    """Yield each state of a cluster with the hours for which it lasted."""
    state = ClusterState()
    for number, event in enumerate(events):
        state.apply(event)
        following = events[number + 1].time if number + 1 < len(events) else end
        if following > event.time:
            yield state.freeze(), (following - event.time) / HOUR


def paid(events: Sequence[Event], end: Time) -> float:
    """USD by the comings and goings of nodes and instances alone."""
    machines: dict[str, dict[str, float]] = {}
    nodes: dict[str, float] = {}
    total, now = 0.0, events[0].time if events else end
    for time, change in [*((event.time, event) for event in events), (end, None)]:
        instances = {name: price for group in machines.values() for name, price in group.items()}
        static = sum(price for name, price in nodes.items() if name not in instances)
        total += (static + sum(instances.values())) * (time - now) / HOUR
        now = time
        match change:
            case Applied(_, Node() as node):
                nodes[node.name] = node_price(node, PRICES).hourly
            case Deleted(_, "nodes", key):
                nodes.pop(key, None)
            case Applied(_, NodeGroup() as group):
                machines[group.name] = {one.name: one.price for one in group.instances}
    return total


@law
@given(lives())
def test_all_costs_add_up_to_the_price_of_all_nodes_for_their_lifetime(life: Life) -> None:
    rows = booked(life.events, life.begin, life.end)
    expected = paid(life.events, life.end)
    assert sum(row.cost_usd for row in rows) == pytest.approx(expected, rel=1e-9, abs=1e-9)
    for by in CostBy:
        summary = cost_summary(rows, by, (life.begin, life.end))
        assert summary.total_cost_usd == pytest.approx(expected, abs=0.005 + 1e-6)
        parts = [*(item.cost_usd for item in summary.items), summary.idle_cost_usd, summary.system_cost_usd]
        assert round(sum(parts), 2) == summary.total_cost_usd
        for item in summary.items:
            assert round(item.used_usd + item.underutilized_usd + item.lost_usd, 2) == item.cost_usd


@law
@given(lives())
def test_categories_are_never_negative_and_do_not_overlap(life: Life) -> None:
    for (owner, _), sums in summed(booked(life.events, life.begin, life.end)).items():
        row = CostHour(owner=owner, hour=0, **dict(zip(AMOUNTS, sums, strict=True)))  # type: ignore[arg-type]
        assert min(sums) > -1e-9
        assert row.busy_gpu_seconds <= row.measured_gpu_seconds + 1e-6
        assert row.measured_gpu_seconds <= row.gpu_seconds + 1e-6
        allocated = row.used_usd + row.underutilized_usd + row.lost_usd
        kinds = {CostKind.WORKLOAD: allocated, CostKind.IDLE: row.idle_usd, CostKind.SYSTEM: row.system_usd}
        assert row.cost_usd == pytest.approx(kinds[row.owner.kind])


@law
@given(lives(), st.lists(st.integers(0, 3 * HOUR), max_size=6))
def test_the_same_events_in_other_batches_give_the_same_costs(life: Life, drains: list[int]) -> None:
    whole = summed(booked(life.events, life.begin, life.end))
    cut = summed(booked(life.events, life.begin, life.end, [life.begin + drain for drain in drains]))
    assert whole.keys() == cut.keys()
    for key, sums in whole.items():
        assert cut[key] == pytest.approx(sums, abs=1e-6)


@law
@given(lives(), st.floats(0, 1))
def test_an_allocator_that_starts_later_books_the_same_from_then_on(life: Life, part: float) -> None:
    begin = life.begin + round(part * (life.end - life.begin))
    state = ClusterState(begin)
    before = life.until(begin)
    for event in before:
        state.apply(event)
    late = CostAllocator(state.freeze(), PRICES)
    whole = CostAllocator(Snapshot(life.begin, 0, {}, ()), PRICES)
    for event in before:
        whole.note(event)
    whole.advance(begin)
    whole.drain()
    for event in life.events[len(before) :]:
        whole.note(event)
        late.note(event)
    for allocator in (whole, late):
        allocator.advance(life.end)
    totals = [_by_workload(allocator.drain()) for allocator in (whole, late)]
    assert totals[1] == pytest.approx(totals[0], abs=1e-6)


def _by_workload(rows: Sequence[CostHour]) -> dict[str, float]:
    found: dict[str, float] = defaultdict(float)
    for row in rows:
        found[f"{row.owner.kind} {row.owner.workload}"] += row.cost_usd
    return {name: cost for name, cost in found.items() if abs(cost) > 1e-6}


def rates_added_up(events: Sequence[Event], end: Time) -> dict[str, float]:
    """The costs by workload, from the rate of each state of the cluster and the time for which it lasted."""
    found: dict[str, float] = defaultdict(float)
    for snapshot, hours in states(events, end):
        for one in cost_report(snapshot, PRICES, {}).by[By.WORKLOAD]:
            found[f"workload {one.name}" if one.name else "idle "] += one.hourly * hours
    return {name: cost for name, cost in found.items() if abs(cost) > 1e-6}


@law
@given(lives())
def test_costs_over_time_are_the_present_rates_added_up(life: Life) -> None:
    expected = rates_added_up(life.events, life.end)
    assert _by_workload(booked(life.events, life.begin, life.end)) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("shape", ["1g", "3g", "whole"])
def test_partitions_of_gpus_that_are_claimed_cost_what_they_are_of_a_gpu(shape: str) -> None:
    simulation = partitioned(shape, "1g")
    events = simulation.drain()
    begin = simulation.now - HOUR
    expected = rates_added_up(events, simulation.now)
    assert "workload Job/b/wide" in expected
    assert _by_workload(booked(events, begin, simulation.now)) == pytest.approx(expected, abs=1e-6)


@law
@given(lives())
def test_autoscaled_pools_cost_what_their_groups_have_spent(life: Life) -> None:
    changed = [event.object for event in life.events if isinstance(event, Applied)]
    instances = {one.name for group in changed if isinstance(group, NodeGroup) for one in group.instances}
    # A node that was added by hand has the labels of its pool, but the pool does not pay for it.
    added = {node.key for node in changed if isinstance(node, Node)} - instances
    events = [event for event in life.events if not (isinstance(event, Applied) and event.object.key in added)]
    costs: dict[str, float] = defaultdict(float)
    for row in booked(events, life.begin, life.end):
        costs[row.owner.pool] += row.cost_usd
    groups: list[NodeGroup] = list(life.last.node_groups.all())
    for group in groups:
        assert costs[group.name] == pytest.approx(group.cost(life.end), abs=1e-6)


@law
@given(lives())
def test_no_more_is_lost_than_what_evictions_lost(life: Life) -> None:
    rows = booked(life.events, life.begin, life.end)
    lost = sum(
        event.lost_gpu_seconds
        for event in life.events
        if isinstance(event, HistoryEvent) and event.what is not HistoryEventKind.PREEMPTED
    )
    dearest = max(_gpu_hour_prices(life))
    assert sum(row.lost_usd for row in rows) <= lost / 3600 * dearest + 1e-6


def _gpu_hour_prices(life: Life) -> Iterator[float]:
    """USD per GPU-hour of every node and instance that there was."""
    yield from (*PRICES.gpu_hour.values(), PRICES.other)
    for event in life.events:
        if isinstance(event, Applied) and isinstance(event.object, NodeGroup):
            yield from (one.price / max(1, one.gpus) for one in event.object.instances)
