"""Telemetry of a node: what is missing stays missing, what is idle is counted on, and what did not change is shared."""

import msgspec
from msgspec.structs import replace

from gpuconsole.model.clock import MINUTE, SECOND
from gpuconsole.model.events import Applied
from gpuconsole.model.snapshot import decode, encode
from gpuconsole.model.state import ClusterState
from gpuconsole.model.telemetry import GpuMetric, MeasuredDevice, NodeTelemetry, follow, is_idle

IDLE = NodeTelemetry(
    name="a",
    time=100 * MINUTE,
    source="http://prometheus",
    lasts=MINUTE,
    devices=(MeasuredDevice(gpu=0, pod="team/train"), MeasuredDevice(gpu=1, instance=3, profile="1g.10gb")),
    columns={
        GpuMetric.UTILISATION: (0.0, None),
        GpuMetric.ACTIVE: (None, 0.001),
        GpuMetric.MEMORY_USED: (12.0, 400.0),
    },
)


def test_a_value_that_nobody_told_is_missing_and_not_zero() -> None:
    assert IDLE.value(1, GpuMetric.UTILISATION) is None
    assert IDLE.value(0, GpuMetric.POWER) is None
    assert IDLE.value(7, GpuMetric.UTILISATION) is None
    assert IDLE.value(0, GpuMetric.UTILISATION) == 0.0


def test_a_gpu_is_idle_if_it_computes_nothing_and_holds_next_to_no_memory() -> None:
    def with_(measure: GpuMetric, *values: float | None) -> NodeTelemetry:
        return replace(IDLE, columns={**IDLE.columns, measure: values})

    assert [is_idle(IDLE, 0), is_idle(IDLE, 1)] == [True, True]
    assert not is_idle(with_(GpuMetric.UTILISATION, 1.0, None), 0)
    assert not is_idle(with_(GpuMetric.MEMORY_USED, 500.0, 400.0), 0)
    assert not is_idle(with_(GpuMetric.MEMORY_USED, None, 400.0), 0), "nobody knows what it holds"
    assert not is_idle(with_(GpuMetric.ACTIVE, None, 0.006), 1)
    assert not is_idle(with_(GpuMetric.ACTIVE, None, None), 1), "nobody knows whether it computes"


def test_idleness_goes_on_from_one_look_to_the_next_until_there_is_work_or_another_pod() -> None:
    first = follow(None, IDLE)
    assert first.idle == (100 * MINUTE, 100 * MINUTE)
    later = follow(first, replace(IDLE, time=130 * MINUTE))
    assert later.idle == (100 * MINUTE, 100 * MINUTE)
    assert later.devices is first.devices
    busy = {**IDLE.columns, GpuMetric.UTILISATION: (55.0, None)}
    worked = follow(later, replace(IDLE, time=131 * MINUTE, columns=busy))
    assert worked.idle == (None, 100 * MINUTE)
    assert follow(worked, replace(IDLE, time=132 * MINUTE)).idle == (132 * MINUTE, 100 * MINUTE)
    others = (replace(IDLE.devices[0], pod="team/other"), IDLE.devices[1])
    assert follow(later, replace(IDLE, time=133 * MINUTE, devices=others)).idle == (133 * MINUTE, 100 * MINUTE)


def test_a_source_may_know_of_an_earlier_beginning() -> None:
    said = replace(IDLE, idle=(60 * MINUTE, None))
    assert follow(None, said).idle == (60 * MINUTE, 100 * MINUTE)


def test_it_is_stale_after_its_time_and_what_has_no_time_never_is() -> None:
    assert not IDLE.stale(IDLE.time + MINUTE)
    assert IDLE.stale(IDLE.time + MINUTE + SECOND)
    assert not replace(IDLE, lasts=0).stale(IDLE.time + 10**15)


def test_a_snapshot_keeps_it() -> None:
    state = ClusterState()
    state.apply(Applied(IDLE.time, IDLE))
    snapshot = state.freeze()
    assert snapshot.telemetry["a"] is IDLE
    assert ClusterState.from_file(decode(encode(snapshot))).freeze().telemetry["a"] == IDLE
    assert msgspec.json.decode(encode(snapshot))["objects"][0]["columns"]["utilisation"] == [0.0, None]
