"""Average utilization of the cluster and of each team, and a finding where it is below 30%."""

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from gpuconsole.insight.health.alerts import AlertKind, alerts
from gpuconsole.insight.health.antipatterns import AntiPatternCode, antipatterns
from gpuconsole.insight.health.telemetry import Average, Utilization, utilization
from gpuconsole.model.clock import MINUTE, SECOND, Time
from gpuconsole.model.cluster import Node, Pod, PodPhase
from gpuconsole.model.events import Applied
from gpuconsole.model.objects import Object
from gpuconsole.model.prices import Prices
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.state import ClusterState
from gpuconsole.model.telemetry import GpuMetric, MeasuredDevice, NodeTelemetry
from gpuconsole.ui.answers.cluster_reports import utilization_lines
from gpuconsole.ui.screens.nodes import measured_text

NOW: Time = 1_760_000_000_000_000
NODE = Node(name="a", allocatable={"nvidia.com/gpu": 6})


def pod(team: str, name: str, *gpus: int, **more: Any) -> Pod:
    began = NOW - 60 * MINUTE
    return Pod(
        namespace=team,
        name=name,
        node="a",
        gpus=gpus,
        phase=PodPhase.RUNNING,
        bound=began,
        started=began,
        **more,
    )


def cluster(*pods: Pod, at: Time = NOW, **columns: tuple[float | None, ...]) -> Snapshot:
    """A node of six GPUs that are measured."""
    return measured({GpuMetric[name.upper()]: column for name, column in columns.items()}, *pods, at=at)


def measured(columns: Mapping[GpuMetric, tuple[float | None, ...]], *pods: Pod, at: Time = NOW) -> Snapshot:
    devices = tuple(MeasuredDevice(gpu=index) for index in range(6))
    telemetry = NodeTelemetry(name="a", time=NOW, lasts=90 * SECOND, devices=devices, columns=columns)
    state = ClusterState(at)
    things: tuple[Object, ...] = (NODE, *pods, telemetry)
    for thing in things:
        state.apply(Applied(at, thing))
    return state.freeze()


SPEECH, VISION = pod("speech", "s", 0, 1, job="Job/speech/s"), pod("vision", "v", 2, 3)


def average(team: str, gpus: int, measured: int, utilization: float | None, sm: float | None) -> Average:
    return Average(team=team, gpus=gpus, measured=measured, utilization=utilization, sm=sm)


def test_the_average_is_over_the_gpus_that_pods_run_on_by_team() -> None:
    found = utilization(cluster(SPEECH, VISION, utilisation=(20.0, 40.0, 80.0, 100.0, 0.0, 0.0)))
    assert found == Utilization(
        cluster=average("", 4, 4, 60.0, None),
        teams=(average("speech", 2, 2, 30.0, None), average("vision", 2, 2, 90.0, None)),
    )


def test_what_is_not_measured_is_not_taken_for_zero_and_what_is_stale_says_nothing() -> None:
    found = utilization(cluster(SPEECH, utilisation=(20.0, None, None, None, None, None)))
    assert found is not None
    assert found.cluster == average("", 2, 1, 20.0, None)
    assert utilization(cluster(SPEECH)) is None
    assert utilization(cluster(utilisation=(20.0,) * 6)) is None
    assert utilization(cluster(SPEECH, at=NOW + 5 * MINUTE, utilisation=(20.0,) * 6)) is None


def test_gpus_of_a_gang_that_is_not_complete_do_not_count() -> None:
    waits = replace(VISION, name="w", node="", gpus=(), phase=PodPhase.PENDING, gang="g", gang_size=2)
    placed = replace(VISION, gang="g", gang_size=2)
    found = utilization(cluster(SPEECH, placed, waits, utilisation=(50.0, 50.0, 0.0, 0.0, 0.0, 0.0)))
    assert found is not None
    assert [one.team for one in found.teams] == ["speech"]


@pytest.mark.parametrize(
    ("columns", "found"),
    [
        ({GpuMetric.UTILISATION: (90.0,) * 6}, []),
        ({GpuMetric.UTILISATION: (30.0,) * 6}, []),
        (
            {GpuMetric.UTILISATION: (10.0, 10.0, 90.0, 90.0, 0.0, 0.0)},
            [("speech", "team speech: average utilization 10% on 2 GPUs, below 30%")],
        ),
        (
            {GpuMetric.UTILISATION: (95.0,) * 6, GpuMetric.SM: (0.1, 0.1, 0.4, 0.4, 0.0, 0.0)},
            [
                ("", "the cluster: average SM activity 25% on 4 GPUs, below 30%"),
                ("speech", "team speech: average SM activity 10% on 2 GPUs, below 30%"),
            ],
        ),
    ],
)
def test_below_30_percent_is_a_finding_and_sm_activity_counts_where_it_is_measured(
    columns: dict[GpuMetric, tuple[float, ...]], found: list[tuple[str, str]]
) -> None:
    snapshot = measured(columns, SPEECH, VISION)
    patterns = [one for one in antipatterns(snapshot, Prices()) if one.code is AntiPatternCode.LOW_UTILIZATION]
    assert sorted((one.subject, one.text) for one in patterns) == found
    told = [one.text for one in alerts(snapshot) if one.trouble is AlertKind.LOW_UTILIZATION]
    assert sorted(told) == sorted(text for _, text in found)


def test_who_has_just_begun_is_no_finding_yet() -> None:
    young = replace(SPEECH, started=NOW - 29 * MINUTE)
    snapshot = cluster(young, utilisation=(5.0,) * 6)
    assert [one for one in antipatterns(snapshot, Prices()) if one.code is AntiPatternCode.LOW_UTILIZATION] == []
    found = utilization(snapshot)
    assert found is not None
    assert found.cluster.percent == 5.0


def test_the_nodes_screen_and_the_command_tell_the_averages() -> None:
    snapshot = cluster(SPEECH, VISION, utilisation=(95.0,) * 6, sm=(0.1, 0.1, 0.4, 0.4, 0.0, 0.0))
    assert measured_text(snapshot) == "average utilization 95%, SM activity 25%"
    found = utilization(snapshot)
    assert found is not None
    assert utilization_lines(found) == [
        "TEAM     GPUS  MEASURED  UTILIZATION  SM ACTIVITY",
        "cluster     4         4  95%          25%",
        "speech      2         2  95%          10%",
        "vision      2         2  95%          40%",
    ]
