"""Measurements joined to their owners, and what the rules make of them; what is missing or stale counts nothing."""

from typing import Any

import pytest
from msgspec.structs import replace

from gpuconsole.insight.health.telemetry import (
    Coverage,
    GpuAlarm,
    GpuAlarmRule,
    GpuUtilization,
    alarms,
    coverage,
    gpus,
    use,
)
from gpuconsole.model.clock import MINUTE, SECOND, Time
from gpuconsole.model.cluster import Node, Pod, PodPhase
from gpuconsole.model.events import Applied
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.state import ClusterState
from gpuconsole.model.telemetry import GpuMetric, MeasuredDevice, NodeTelemetry
from gpuconsole.model.workloads import Admission, Workload

START = 1_760_000_000_000_000
NOW = START + 60 * MINUTE
NODE = Node(name="a", allocatable={"nvidia.com/gpu": 2})
TRAIN = Workload(name="train", namespace="team", created=START, admission=Admission(cluster_queue="cq"))
POD = Pod(
    name="train-0",
    namespace="team",
    node="a",
    gpus=(0, 1),
    workload="team/train",
    phase=PodPhase.RUNNING,
    bound=START,
    started=START,
)
WHOLE = (MeasuredDevice(gpu=0), MeasuredDevice(gpu=1))


def told(
    devices: tuple[MeasuredDevice, ...] = WHOLE, idle: tuple[Time | None, ...] = (), **columns: Any
) -> NodeTelemetry:
    named = {GpuMetric[name.upper()]: column for name, column in columns.items()}
    return NodeTelemetry(
        name="a", time=NOW, source="http://p", lasts=90 * SECOND, devices=devices, columns=named, idle=idle
    )


def snapshot(*things: Node | Pod | Workload | NodeTelemetry, at: Time = NOW) -> Snapshot:
    state = ClusterState(at)
    for thing in things or ():
        state.apply(Applied(at, thing))
    return state.freeze()


def cluster(telemetry: NodeTelemetry, at: Time = NOW) -> Snapshot:
    return snapshot(NODE, TRAIN, POD, telemetry, at=at)


def test_a_gpu_belongs_to_who_owns_its_index() -> None:
    (first, second) = gpus(cluster(told(utilisation=(90.0, None))))
    assert (first.name, first.pod, first.workload, first.since) == (
        "a GPU 0",
        "team/train-0",
        "team/train",
        START,
    )
    assert (first.busy, second.busy) == (90.0, None)


def test_a_live_cluster_names_no_indices_but_its_exporter_names_the_pods() -> None:
    pod = replace(POD, gpus=())
    devices = (MeasuredDevice(gpu=0), MeasuredDevice(gpu=1, pod="team/train-0"))
    (first, second) = gpus(snapshot(NODE, TRAIN, pod, told(devices=devices, utilisation=(1.0, 2.0))))
    assert (first.pod, first.workload) == ("", "")
    assert (second.pod, second.workload) == ("team/train-0", "team/train")


def test_a_pod_that_is_not_known_keeps_its_name() -> None:
    (one,) = gpus(snapshot(NODE, told(devices=(MeasuredDevice(gpu=0, pod="other/p"),), utilisation=(1.0,))))
    assert (one.pod, one.workload) == ("other/p", "")


def test_a_workload_is_told_by_the_means_of_what_is_measured() -> None:
    columns: dict[str, Any] = {"utilisation": (90.0, 70.0), "sm": (0.5, None), "memory_used": (10.0, 20.0)}
    seen = cluster(told(**columns, power=(600.0, None), temperature=(60.0, 71.0)))
    assert use(seen, "team/train") == GpuUtilization(
        gpus=2, measured=2, sm=50.0, busy=80.0, memory=30.0, power=600.0, hottest=71.0
    )
    assert use(seen, "team/other") is None
    partly = cluster(told(utilisation=(90.0, None)))
    assert use(partly, "team/train") == GpuUtilization(gpus=2, measured=1, busy=90.0)


def test_what_is_stale_is_no_measure() -> None:
    late = cluster(told(utilisation=(0.0, 0.0), xid=(79.0, 0.0)), at=NOW + 91 * SECOND)
    assert use(late, "team/train") == GpuUtilization(gpus=2, measured=0)
    assert alarms(late) == ()
    assert coverage(late) == Coverage(nodes=1, measured=1, stale=1, source="http://p", newest=NOW)


def test_how_much_is_measured_is_said() -> None:
    assert coverage(snapshot(NODE)) is None
    found = coverage(snapshot(NODE, replace(NODE, name="b"), Node(name="cpu"), told()))
    assert found == Coverage(nodes=2, measured=1, stale=0, source="http://p", newest=NOW)
    assert found.partial


@pytest.mark.parametrize(("minutes", "found"), [(29, 0), (30, 1)])
def test_a_pod_is_idle_after_half_an_hour_and_not_a_minute_before(minutes: int, found: int) -> None:
    idle = told(idle=(NOW - minutes * MINUTE, None), utilisation=(0.0, 99.0), memory_used=(3.0, 9000.0))
    assert len(alarms(cluster(idle))) == found


def test_idle_gpus_are_one_line_a_workload_and_count_from_the_start_of_the_pod() -> None:
    early = told(idle=(START - 90 * MINUTE, START + 20 * MINUTE))
    (alarm,) = alarms(cluster(early))
    assert alarm == GpuAlarm(
        rule=GpuAlarmRule.IDLE,
        text="team/train: 2 GPUs allocated but idle for 40m",
        node="a",
        workload="team/train",
        gpus=2,
        since=START + 20 * MINUTE,
    )


def test_instances_of_one_gpu_are_called_and_counted_so() -> None:
    pod = replace(POD, gpus=())
    parts = tuple(MeasuredDevice(gpu=0, instance=n, profile="1g.10gb", pod="team/train-0") for n in range(3))
    seen = snapshot(NODE, TRAIN, pod, told(devices=parts, idle=(START, START, START)))
    (alarm,) = alarms(seen)
    assert alarm.text.startswith("team/train: 3 MIG 1g.10gb instances allocated but idle for")
    assert (alarm.gpus, alarm.unit) == (3, "MIG 1g.10gb instance")


def test_a_gpu_that_nobody_has_may_be_idle() -> None:
    assert alarms(snapshot(NODE, told(idle=(START, START)))) == ()


@pytest.mark.parametrize(
    ("columns", "rule", "text"),
    [
        ({"xid": (79.0, 0.0)}, GpuAlarmRule.FAULTY, "a GPU 0: XID 79 (GPU has fallen off the bus); cordon a"),
        ({"xid": (0.0, 63.0)}, GpuAlarmRule.FAULTY, "a GPU 1: XID 63 (row remapping event)"),
        ({"xid": (7.0, 0.0)}, GpuAlarmRule.FAULTY, "a GPU 0: XID 7"),
        (
            {"remap_failure": (1.0, 0.0)},
            GpuAlarmRule.FAULTY,
            "a GPU 0: row remapping failure; replace the GPU",
        ),
        ({"temperature": (87.0, 86.0)}, GpuAlarmRule.HOT, "a GPU 0: temperature 87 °C"),
        (
            {"temperature": (70.0, 60.0), "throttle": (0x40, 0x4)},
            GpuAlarmRule.HOT,
            "a GPU 0: clocks throttled at 70 °C",
        ),
        (
            {"memory_used": (81.0, 1.0), "memory_free": (19.0, 99.0), "active": (0.049, 0.0)},
            GpuAlarmRule.HOARDING,
            "team/train: memory almost full, no activity on 1 GPU",
        ),
        (
            {"utilisation": (91.0, 92.0), "sm": (0.29, 0.1)},
            GpuAlarmRule.EMPTY,
            "team/train: low SM activity (20%) on 2 GPUs",
        ),
    ],
)
def test_rules(columns: dict[str, Any], rule: GpuAlarmRule, text: str) -> None:
    (alarm,) = alarms(cluster(told(**columns)))
    assert (alarm.rule, alarm.text) == (rule, text)


@pytest.mark.parametrize(
    "columns",
    [
        {"xid": (13.0, 45.0)},
        {"xid": (None, None)},
        {"throttle": (0x4, 0x1)},
        {"memory_used": (80.0, 80.0), "memory_free": (20.0, 20.0), "active": (0.0, 0.0)},
        {"memory_used": (90.0, 90.0), "memory_free": (10.0, None), "active": (0.05, 0.0)},
        {"memory_used": (90.0, 90.0), "memory_free": (10.0, 10.0)},
        {"utilisation": (90.0, 99.0), "sm": (0.1, 0.3)},
        {"utilisation": (99.0, 99.0)},
    ],
)
def test_what_is_no_reason_for_alarm(columns: dict[str, Any]) -> None:
    assert alarms(cluster(told(**columns))) == ()


def test_the_most_pressing_comes_first() -> None:
    seen = cluster(told(xid=(0.0, 48.0), temperature=(90.0, 50.0), idle=(START, START)))
    assert [alarm.rule for alarm in alarms(seen)] == [GpuAlarmRule.FAULTY, GpuAlarmRule.HOT, GpuAlarmRule.IDLE]


def test_only_what_changed_is_looked_at_again() -> None:
    state = ClusterState(NOW)
    for thing in (NODE, replace(NODE, name="b"), TRAIN, POD, told(), replace(told(), name="b")):
        state.apply(Applied(NOW, thing))
    before = gpus(state.freeze())
    state.apply(Applied(NOW, replace(told(utilisation=(1.0, 2.0)), name="b")))
    after = gpus(state.freeze())
    assert [old is new for old, new in zip(before, after, strict=True)] == [True, True, False, False]
    assert [gpu.busy for gpu in after] == [None, None, 1.0, 2.0]
    state.apply(Applied(NOW, replace(POD, phase=PodPhase.SUCCEEDED)))
    assert [gpu.pod for gpu in gpus(state.freeze())] == ["", "", "", ""]
