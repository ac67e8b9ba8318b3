"""What GPUs measure, on the screens: coloured, by unit, by workload, and as what needs attention."""

from msgspec.structs import replace

from gpuconsole.insight.health.alerts import AlertKind, alerts
from gpuconsole.insight.health.telemetry import Coverage, GpuUtilization
from gpuconsole.model.clock import MINUTE
from gpuconsole.model.objects import Object
from gpuconsole.model.telemetry import GpuMetric, MeasuredDevice, NodeTelemetry
from gpuconsole.ui.node_columns import coverage_text, trend_text, use_text
from gpuconsole.ui.screens.nodes import NodeDetailScreen
from gpuconsole.ui.screens.workloads import WorkloadDetailScreen
from tests.support.console_clusters import NOW, org_cohort, recorded, snapshot_of
from tests.support.console_stage import staged

NODE_1 = NodeTelemetry(
    name="node-1",
    time=NOW - 20_000_000,
    source="http://prometheus:9090",
    lasts=MINUTE,
    devices=tuple(MeasuredDevice(gpu=gpu) for gpu in range(8)),
    columns={
        GpuMetric.UTILISATION: (97.0, *[50.0] * 6, None),
        GpuMetric.SM: (0.81, *[0.5] * 6, None),
        GpuMetric.MEMORY_USED: (61_440.0, *[500.0] * 7),
        GpuMetric.POWER: (640.0, *[300.0] * 7),
        GpuMetric.TEMPERATURE: (91.0, *[60.0] * 7),
        GpuMetric.XID: (0.0, 79.0, *[0.0] * 6),
    },
)


def world(telemetry: NodeTelemetry = NODE_1) -> list[Object]:
    return [*org_cohort(), telemetry]


async def test_the_map_is_coloured_by_use_and_by_heat() -> None:
    async with staged(recorded(world())) as stage:
        await stage.press("4", "B", "B", "B", "B")
        assert "node-1 █▆▆▆▆▆▆·" in stage.text
        assert "GPU metrics: 1 of 3 nodes (20s ago)" in stage.text
        assert "by utilization" in stage.text
        await stage.press("B")
        assert "node-1 █▃▃▃▃▃▃▃" in stage.text
        assert "█ 87 °C and more 1" in stage.text


async def test_a_node_tells_what_each_gpu_measures_and_who_said_so_when() -> None:
    async with staged(recorded(world())) as stage:
        await stage.press("4", "enter")
        assert isinstance(stage.app.screen, NodeDetailScreen)
        assert "sampled 20s ago by http://prometheus:9090" in stage.text
        first, second, last = (stage.line(start).split() for start in ("▌    0 ▣", "     1 ▣", "     7 ▣"))
        assert first[-8:] == ["2h00m", "97%", "81%", "60.0Gi", "640", "91", "–", "0"]
        assert second[-8:] == ["2h00m", "50%", "50%", "500Mi", "300", "60", "79", "0"]
        assert last[-8:] == ["2h00m", "–", "–", "500Mi", "300", "60", "–", "0"]
        assert stage.line("GPU 0 utilization: last hour").endswith("█")
        await stage.press("j")
        assert stage.line("GPU 1 utilization: last hour").endswith("▅")


async def test_a_wide_table_has_the_last_hour_of_each_gpu() -> None:
    async with staged(recorded(world()), (180, 40)) as stage:
        await stage.press("4", "enter")
        assert "LAST HOUR" in stage.line("GPU STATE")
        assert stage.line("     1 ▣").split()[-4:-3] == ["▅"]


def test_the_last_hour_is_drawn_by_five_minutes_with_its_gaps() -> None:
    assert trend_text((None, 0.0, 12.4, 12.5, 50.0, 99.9, 100.0)) == "last hour  ▁▁▂▅██"
    assert trend_text((None, None)) == ""


async def test_a_workload_tells_how_it_uses_its_gpus() -> None:
    async with staged(recorded(world())) as stage:
        await stage.press("4", "enter", "enter")
        assert isinstance(stage.app.screen, WorkloadDetailScreen)
        assert "SM 54%" in stage.text


def test_faults_heat_and_waste_need_attention() -> None:
    idle = replace(NODE_1, idle=tuple(NOW - 50 * MINUTE for _ in range(8)))
    found = [(one.trouble, one.text, one.table, one.key) for one in alerts(snapshot_of(world(idle)))]
    assert (
        AlertKind.GPU_FAULT,
        "node-1 GPU 1: XID 79 (GPU has fallen off the bus); cordon node-1",
        "nodes",
        "node-1",
    ) in found
    assert (AlertKind.GPU_HOT, "node-1 GPU 0: temperature 91 °C", "nodes", "node-1") in found
    (unused,) = [one for one in found if one[0] is AlertKind.GPU_UNUSED]
    assert unused[2:] == ("workloads", "prod/serve")
    assert unused[1].startswith("prod/serve: 8 GPUs allocated but idle for ")


def test_many_of_a_kind_are_five_lines_and_their_sum() -> None:
    hot = replace(NODE_1, columns={GpuMetric.TEMPERATURE: (90.0,) * 8})
    lines = [one.text for one in alerts(snapshot_of(world(hot))) if one.trouble is AlertKind.GPU_HOT]
    assert len(lines) == 6
    assert "3 more GPUs hot or throttled" in lines


def test_words_for_use_and_coverage() -> None:
    assert use_text(None) == ""
    assert use_text(GpuUtilization(gpus=8, measured=0)) == "metrics of its 8 GPUs are stale"
    whole = GpuUtilization(gpus=8, measured=6, sm=54.4, busy=70.0, memory=61_440.0, power=2500.0, hottest=91.0)
    assert use_text(whole) == "SM 54% · GPU util 70% · memory 60.0Gi · 2.5 kW · max 91 °C · metrics of 6/8 GPUs"
    assert coverage_text(None, NOW) == ""
    assert coverage_text(Coverage(nodes=3, measured=3, stale=0, source="x", newest=NOW), NOW) == ""
    partly = Coverage(nodes=3, measured=2, stale=1, source="x", newest=NOW - MINUTE)
    assert coverage_text(partly, NOW) == "GPU metrics: 2 of 3 nodes, 1 stale (1m00s ago)"
