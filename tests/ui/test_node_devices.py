"""The node inside: MIG instances and DRA devices with their pods, also where nobody says which instance a pod has."""

import re

import pytest

from gpuconsole.insight.index.device_layout import all_node_gpus
from gpuconsole.insight.index.gpu_map import gpu_rows
from gpuconsole.model.objects import Object
from tests.insight.test_device_units import KINDS, cluster
from tests.insight.test_hardware import divided, live_pod
from tests.support.console_clusters import recorded
from tests.support.console_stage import staged
from tests.ui.test_operator_tasks import INSTANCES


@pytest.mark.parametrize("size", [(80, 24), (160, 50)], ids=str)
async def test_a_live_node_tells_how_many_instances_are_in_use_and_by_whom(size: tuple[int, int]) -> None:
    objects: list[Object] = [
        divided(),
        live_pod("a", **{"1g.10gb": 2}),
        live_pod("b", **{"1g.10gb": 1, "3g.40gb": 1}),
    ]
    async with staged(recorded(objects), size) as stage:
        await stage.press("4", "enter")
        assert "MIG 1g.10gb instances: 3 of 7 in use: team/a 2, team/b 1" in stage.text
        assert "MIG 3g.40gb instances: 1 of 2 in use: team/b 1" in stage.text
        assert "~ unknown which one a pod uses: the cluster does not report it" in stage.text
        rows = [row for row in stage.lines if re.search(r"^[▌ ]+\d +[13]g\.[14]0gb ", row)]
        found = [(re.findall("in use|idle", row), re.findall("team/[ab]", row)[:1]) for row in rows]
        assert found == [
            *[(["in use"], ["team/a"])] * 2,
            (["in use"], ["team/b"]),
            *[(["idle"], [])] * 4,
            (["in use"], ["team/b"]),
            (["idle"], []),
        ]
        if size[0] > 80:
            assert sum("~ team/" in row for row in rows) == 4
        await stage.press("escape")
        assert "3 of 7 MIG 1g.10gb instances in use" in stage.text


async def test_devices_of_dra_are_named_with_their_pods() -> None:
    objects = list(cluster(KINDS["DRA"], kueue=True, jobs=1).objects())
    async with staged(recorded(objects), (160, 50)) as stage:
        await stage.press("4", "enter")
        assert " DEVICE " in stage.line(" GPU ")
        assert "team/job-0" in stage.line(" gpu-0 ")
        assert "idle" in stage.line(" gpu-1 ")
        assert "×0" not in stage.text
        await stage.press("escape", "M", "M")
        line = stage.line(" n1 ")
        assert ("▣○" in line, "-1" in line, "team/job-0" in line) == (True, False, True)


async def test_instances_on_borrowed_quota_are_borrowed_inside_the_node_as_on_the_map() -> None:
    snapshot = INSTANCES.console().snapshot
    rows = {row.node: row for row in gpu_rows(snapshot)}
    inside = all_node_gpus(snapshot)
    assert any(cell.state == "borrowed" for row in rows.values() for cell in row.devices)
    for name, row in rows.items():
        assert sorted(unit.cell.state for unit in inside[name].units) == sorted(cell.state for cell in row.devices)
