"""The GPU map shows each GPU's owner truly, by glyph as well as by colour, and lets no name reach the terminal raw."""

import pytest
from msgspec.structs import replace
from textual.app import App, ComposeResult

from gpuconsole.insight.index.gpu_map import gpu_rows
from gpuconsole.model.clock import MINUTE
from gpuconsole.model.objects import Object
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.telemetry import GpuMetric, MeasuredDevice, NodeTelemetry
from gpuconsole.ui.paint import plain
from gpuconsole.ui.widgets.gpumap import ColourBy, GpuCellStyle, GpuMap, heat
from tests.support.console_clusters import HOSTILE, NOW, node, org_cohort, pod_on, running, snapshot_of


def look_at(snapshot: Snapshot, by: ColourBy) -> GpuCellStyle:
    return GpuCellStyle(by, gpu_rows(snapshot), snapshot.time, snapshot.telemetry)


def drawn(snapshot: Snapshot, by: ColourBy) -> dict[str, str]:
    look = look_at(snapshot, by)
    return {row.node: "".join(glyph for glyph, _ in look.row(row)) for row in gpu_rows(snapshot)}


MEASURED = NodeTelemetry(
    name="node-1",
    time=NOW,
    source="http://prometheus",
    lasts=MINUTE,
    devices=tuple(MeasuredDevice(gpu=gpu) for gpu in range(8)),
    columns={
        GpuMetric.UTILISATION: (0.0, 1.0, 25.0, 50.0, 75.0, 100.0, None, None),
        GpuMetric.ACTIVE: (None, None, None, None, None, None, 0.3, None),
        GpuMetric.TEMPERATURE: (30.0, 45.0, 64.9, 65.0, 86.9, 87.0, 99.0, None),
    },
)


def world() -> Snapshot:
    return snapshot_of([*org_cohort(), MEASURED])


MAPS = {
    ColourBy.STATE: {"node-1": "▣▣▣▣▣▣▣▣", "node-2": "▣▣▣▣▣▣○○", "node-3": "▣▣▲▲▲▲○○"},
    ColourBy.QUEUE: {"node-1": "AAAAAAAA", "node-2": "BBBBBB○○", "node-3": "BBBBBB○○"},
    ColourBy.OWNER: {"node-1": "ssssssss", "node-2": "llllee○○", "node-3": "rrrrrr○○"},
    ColourBy.AGE: {"node-1": "66666666", "node-2": "666611○○", "node-3": "111111○○"},
    ColourBy.UTILISATION: {"node-1": "▁▂▄▆██▄·", "node-2": "········", "node-3": "········"},
    ColourBy.TEMPERATURE: {"node-1": "▁▃▃▅▅██·", "node-2": "········", "node-3": "········"},
}


@pytest.mark.parametrize("by", list(ColourBy))
def test_cells_match_their_owners(by: ColourBy) -> None:
    assert drawn(world(), by) == MAPS[by]


LEGENDS = {
    ColourBy.STATE: "▣ nominal quota 16  ▲ borrowed 4  ○ idle 4",
    ColourBy.QUEUE: "B cq-research 12  A cq-prod 8  ○ idle 4",
    ColourBy.OWNER: "s prod/serve 8  r research/rlhf 6  l research/llm-ft 4  e research/embed 2  ○ idle 4",
    ColourBy.AGE: "6 under 6h 12  1 under 1h 8  ○ idle 4",
    ColourBy.UTILISATION: (
        "▁ idle 1  ▂ under 25% 1  ▄ under 50% 2  ▆ under 75% 1  █ 75% and more 2  · not measured 17"
    ),
    ColourBy.TEMPERATURE: ("▁ under 45 °C 1  ▃ under 65 °C 2  ▅ under 87 °C 2  █ 87 °C and more 2  · not measured 17"),
}


@pytest.mark.parametrize("by", list(ColourBy))
def test_the_legend_counts_what_the_map_shows(by: ColourBy) -> None:
    assert plain(look_at(world(), by).legend()) == LEGENDS[by]


def test_measures_that_are_out_of_date_are_dim() -> None:
    old = replace(MEASURED, time=NOW - 2 * MINUTE)
    look = look_at(snapshot_of([*org_cohort(), old]), ColourBy.UTILISATION)
    first = gpu_rows(snapshot_of([*org_cohort(), old]))[0]
    assert {role for _, role in look.row(first)} == {"dim"}
    assert [glyph for glyph, _ in look.row(first)][:3] == ["▁", "▂", "▄"]


def test_a_divided_gpu_is_as_busy_as_its_busiest_instance() -> None:
    devices = tuple(MeasuredDevice(gpu=0, instance=instance, profile="1g.10gb") for instance in range(3))
    mig = replace(MEASURED, devices=devices, columns={GpuMetric.ACTIVE: (0.1, 0.6, None)})
    assert heat(mig, temperature=False) == {0: 60.0}


def test_queues_have_colours_of_their_own() -> None:
    look = GpuCellStyle(ColourBy.QUEUE, gpu_rows(snapshot_of(org_cohort())))
    assert {look.owned("cq-prod")[1], look.owned("cq-research")[1]} == {"series-1", "series-2"}


def test_a_node_that_is_lost_or_cordoned_shows_it_in_every_cell() -> None:
    objects: list[Object] = [node("lost", ready=False), node("cordoned", unschedulable=True), node("fine")]
    assert drawn(snapshot_of(objects), ColourBy.OWNER) == {
        "lost": "⚠⚠⚠⚠⚠⚠⚠⚠",
        "cordoned": "⏸⏸⏸⏸⏸⏸⏸⏸",
        "fine": "○○○○○○○○",
    }


class MapApp(App[None]):
    CSS = "".join(f".role--{role} {{ color: red; }}" for role in ("own",))

    def compose(self) -> ComposeResult:
        yield GpuMap()


def lines(app: MapApp) -> list[str]:
    gpu_map = app.query_one(GpuMap)
    return [gpu_map.render_line(y).text for y in range(gpu_map.size.height)]


async def test_only_visible_lines_are_drawn_and_the_cursor_walks_by_nodes_and_lines() -> None:
    rows = gpu_rows(snapshot_of([node(f"node-{number:04}") for number in range(1000)]))
    app = MapApp()
    async with app.run_test(size=(80, 24)) as pilot:
        gpu_map = app.query_one(GpuMap)
        gpu_map.focus()
        gpu_map.show(rows)
        await pilot.pause()
        assert lines(app)[0].rstrip() == "▌node-0000 ○○○○○○○○   node-0001 ○○○○○○○○   node-0002 ○○○○○○○○"
        assert len(gpu_map._strips) <= 26
        gpu_map.move(1, 0)
        gpu_map.move(0, 1)
        assert gpu_map.cursor_key == "node-0004"
        gpu_map.edge(1)
        await pilot.pause()
        assert gpu_map.cursor_key == "node-0999"
        assert "node-0999" in "".join(lines(app))
        gpu_map.show(rows[500:])
        assert gpu_map.cursor_key == "node-0999"


@pytest.mark.parametrize(
    ("by", "kept"), [(by, by in (ColourBy.STATE, ColourBy.QUEUE, ColourBy.OWNER)) for by in ColourBy]
)
async def test_nodes_that_did_not_change_are_not_drawn_anew_but_where_time_counts(by: ColourBy, kept: bool) -> None:
    rows = gpu_rows(snapshot_of([node("a"), node("b")]))
    app = MapApp()
    async with app.run_test(size=(80, 24)):
        gpu_map = app.query_one(GpuMap)
        gpu_map.colour = by
        gpu_map.show(rows, now=NOW)
        look = gpu_map.look
        gpu_map.show([*rows], now=NOW + MINUTE)
        assert (gpu_map.look is look) == kept
        changes = [(rows[:1], frozenset[str]()), (rows, frozenset[str]()), (rows, frozenset({"a"}))]
        changes.append((gpu_rows(snapshot_of([node("a"), node("b", unschedulable=True)])), frozenset({"a"})))
        for other, marked in changes:
            look = gpu_map.look
            gpu_map.show(other, marked, now=NOW)
            assert gpu_map.look is not look


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_name_is_drawn_clean(name: str) -> None:
    owner = replace(running("w", 4), name=name)
    objects: list[Object] = [node(name or "n"), owner, pod_on(owner, name or "n", 0)]
    app = MapApp()
    async with app.run_test(size=(80, 24)) as pilot:
        gpu_map = app.query_one(GpuMap)
        gpu_map.show(gpu_rows(snapshot_of(objects)))
        for gpu_map.colour in ColourBy:
            await pilot.pause()
            assert all(line.isprintable() for line in lines(app))
            assert plain(gpu_map.look.legend())
