"""Anti-patterns, deadlocks, pools and lists of pods count MIG instances, replicas and DRA devices, with their unit."""

from typing import Any

import pytest
from msgspec.structs import replace

from gpuconsole.insight.cost.rates import cost_report
from gpuconsole.insight.health.alerts import AlertKind, alerts
from gpuconsole.insight.health.antipatterns import AntiPattern, AntiPatternCode, antipatterns
from gpuconsole.model.clock import HOUR, MINUTE
from gpuconsole.model.devices import short_plural
from gpuconsole.model.events import Applied
from gpuconsole.model.prices import Prices
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.state import ClusterState
from gpuconsole.model.telemetry import GpuMetric, MeasuredDevice, NodeTelemetry
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.scenario import build_simulation, load_scenario
from gpuconsole.ui.answers.cluster_reports import antipatterns_lines
from gpuconsole.ui.screens.cost import POOLS
from gpuconsole.ui.workload_text import pod_line
from tests.insight.test_device_units import KINDS, text
from tests.support.device_cohort import document, job, lent

PRICE = Prices().gpu_hour["a100-80gb"]
SHARED = [name for name in KINDS if name != "DRA"]


def unit_price(name: str) -> float:
    """USD an hour of one unit: two fit on a GPU, and a DRA device is one."""
    return PRICE if name == "DRA" else PRICE / 2


def found(snapshot: Snapshot, code: AntiPatternCode) -> list[AntiPattern]:
    return [one for one in antipatterns(snapshot, Prices()) if one.code is code]


def measured(snapshot: Snapshot, sm: float, idle_minutes: int | None = None) -> Snapshot:
    """The same with a measured device for each unit that a pod runs on."""
    state = ClusterState(snapshot.time)
    for thing in snapshot.objects():
        state.apply(Applied(snapshot.time, thing))
    devices: list[MeasuredDevice] = []
    for pod in snapshot.pods.all():
        devices += [
            MeasuredDevice(gpu=one.gpu, instance=one.start + 1, profile=one.profile, pod=pod.key) for one in pod.slices
        ]
        devices += [MeasuredDevice(gpu=index, pod=pod.key) for index in pod.gpus]
    count = len(devices)
    told = NodeTelemetry(
        name="n1",
        time=snapshot.time,
        source="http://p",
        lasts=HOUR,
        devices=tuple(devices),
        columns={GpuMetric.SM: (sm / 100,) * count, GpuMetric.ACTIVE: (sm / 100,) * count},
        idle=() if idle_minutes is None else (snapshot.time - idle_minutes * MINUTE,) * count,
    )
    state.apply(Applied(snapshot.time, told))
    return state.freeze()


def monopolized(name: str) -> Simulation:
    """Team b runs on all eight units, of which it borrows four; team a waits and may not reclaim."""
    made = document(name, {"create": [job("a", "late", KINDS[name], 2)]})
    for one in made["objects"]:
        if one["kind"] == "ClusterQueue":
            one["spec"]["preemption"] = {}
    simulation = build_simulation(load_scenario([made]))
    simulation.advance(simulation.now + HOUR)
    return simulation


@pytest.mark.parametrize("name", KINDS)
def test_a_monopoly_names_the_unit_and_costs_what_the_borrowed_units_cost(name: str) -> None:
    (one,) = found(monopolized(name).snapshot(), AntiPatternCode.MONOPOLY)
    unit = KINDS[name].unit
    assert one.text == f"cq-b holds 100% of the {unit}s of org; pending below nominal quota: cq-a"
    assert (one.gpus, one.unit) == (4, unit)
    assert one.cost_per_day == pytest.approx(4 * unit_price(name) * 24)
    assert any(f"({4:.1f} {unit}s)" in line for line in antipatterns_lines([one]))


def half_gangs(name: str) -> Snapshot:
    """Two gangs of eight units each, of which four have a node."""
    members: list[dict[str, Any]] = []
    for team in "ab":
        one = job(team, "gang", KINDS[name], 6)
        one["metadata"]["labels"] = {}
        one["metadata"]["annotations"]["gpuconsole.io/gang"] = "true"
        members.append(one)
    made = document(name, {"create": members})
    made["engine"]["admission"] = "none"
    made["engine"].pop("kueueConfig", None)
    made["steps"] = made["steps"][1:]
    simulation = build_simulation(load_scenario([made]))
    simulation.advance(simulation.now + HOUR)
    snapshot = simulation.snapshot()
    return _split(snapshot)


def _split(snapshot: Snapshot) -> Snapshot:
    """The same where the second gang has taken the place of half of the first one's pods."""
    state = ClusterState(snapshot.time)
    for thing in snapshot.objects():
        state.apply(Applied(snapshot.time, thing))
    pods = {team: [pod for pod in snapshot.pods.all() if pod.namespace == team] for team in "ab"}
    holders = sorted((pod for pod in snapshot.pods.all() if pod.node), key=lambda pod: pod.key)
    waiting = sorted((pod for pod in snapshot.pods.all() if not pod.node), key=lambda pod: pod.key)
    assert {len(those) for those in pods.values()} == {6}
    for before, after in list(zip(holders, waiting, strict=False))[:3]:
        taken = replace(after, node=before.node, gpus=before.gpus, slices=before.slices, phase=before.phase)
        state.apply(Applied(snapshot.time, taken))
        state.apply(Applied(snapshot.time, replace(before, node="", gpus=(), slices=(), phase=after.phase)))
    return state.freeze()


@pytest.mark.parametrize("name", KINDS)
def test_a_deadlock_names_the_unit_of_each_gang_and_has_a_price(name: str) -> None:
    snapshot = half_gangs(name)
    unit = KINDS[name].unit
    (one,) = found(snapshot, AntiPatternCode.DEADLOCK)
    assert sorted(one.evidence.values()) == [f"holds 3 {unit}s, needs 3 more"] * 2
    assert (one.gpus, one.unit) == (6, unit)
    assert one.cost_per_day == pytest.approx(6 * unit_price(name) * 24)
    (line,) = [each for each in alerts(snapshot) if each.trouble is AlertKind.DEADLOCK]
    assert f"holds 3 {unit}s and needs 3 more; " in line.text


@pytest.mark.parametrize("name", SHARED)
def test_an_oversized_request_is_found_on_parts_of_gpus(name: str) -> None:
    snapshot = measured(lent(name).snapshot(), 5)
    (one,) = found(snapshot, AntiPatternCode.OVERSIZED)
    unit = KINDS[name].unit
    assert one.text == f"{one.subject}: SM activity 5% on 8 {unit}s, below 10%"
    assert one.unit == unit
    assert one.gpus == pytest.approx(8 * 0.95)
    assert one.cost_per_day == pytest.approx(8 * PRICE / 2 * 0.95 * 24)


@pytest.mark.parametrize("name", SHARED)
def test_idle_parts_of_gpus_are_counted_in_their_unit_and_have_a_price(name: str) -> None:
    snapshot = measured(lent(name).snapshot(), 0, idle_minutes=45)
    (one,) = found(snapshot, AntiPatternCode.BORROWED_IDLE)
    unit = KINDS[name].unit
    assert one.text == f"{one.subject}: 8 {unit}s allocated but idle for 45m; 4 of them borrowed"
    assert (one.gpus, one.unit) == (8, unit)
    assert one.cost_per_day == pytest.approx(8 * PRICE / 2 * 24)


@pytest.mark.parametrize("name", SHARED)
def test_low_utilization_counts_parts_of_gpus_as_such(name: str) -> None:
    snapshot = measured(lent(name).snapshot(), 5)
    unit = KINDS[name].unit
    assert [one.text for one in found(snapshot, AntiPatternCode.LOW_UTILIZATION)] == [
        f"the cluster: average SM activity 5% on 8 {unit}s, below 30%",
        f"team b: average SM activity 5% on 8 {unit}s, below 30%",
    ]


@pytest.mark.parametrize("name", KINDS)
def test_the_table_of_pools_counts_devices_of_every_kind(name: str) -> None:
    (one,) = cost_report(lent(name).snapshot(), Prices(), {}).pools
    unit = KINDS[name].unit
    assert (one.pool.used, one.pool.gpus, one.pool.unit) == (8, 8, unit)
    (column,) = [each for each in POOLS if each.id == "usage"]
    assert text(column.cell(one)) == f"8/8 {short_plural(unit)[:3]}"


@pytest.mark.parametrize("name", KINDS)
def test_a_pod_says_which_device_it_has(name: str) -> None:
    snapshot = lent(name).snapshot()
    pod = snapshot.pods["b/wide-0"]
    written = text(pod_line(snapshot, pod))
    expected = {
        "MIG single": "MIG 3g.40gb instance 0",
        "MIG mixed": "MIG 3g.40gb of GPU 0",
        "DRA": "DRA device gpu-0",
    }
    assert written.endswith(expected.get(name, f"{KINDS[name].unit} 0"))
