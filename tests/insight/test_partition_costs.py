"""A partition of a device (KEP-4815) costs the part of a GPU that it consumes of the counters it shares."""

from typing import Any

import pytest

from gpuconsole.insight.cost.rates import By, cost_report
from gpuconsole.insight.index.demand import device_counter
from gpuconsole.insight.index.gpu_time import SHARES, holdings_of
from gpuconsole.model.clock import HOUR
from gpuconsole.model.prices import Prices
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.scenario import build_simulation, load_scenario
from tests.support.device_cohort import document

PRICE = Prices().gpu_hour["a100-80gb"]
SHAPES = {
    "1g": (14, 9728, range(1)),
    "2g": (28, 19968, range(2)),
    "3g": (42, 40192, range(4)),
    "whole": (98, 81920, range(8)),
}
"""Multiprocessors, MiB and memory slices, as NVIDIA's driver publishes them for an A100 of 80 GB."""


def _counters(processors: int, memory: int, slices: range) -> dict[str, Any]:
    amounts = {"multiprocessors": str(processors), "memory": f"{memory}Mi"}
    return {name: {"value": value} for name, value in (amounts | {f"memory-slice-{n}": "1" for n in slices}).items()}


def partitioned(*shapes: str, apart: bool = False) -> Simulation:
    """Node n1 has two GPUs, of which gpu-0 is offered in these partitions; team b wants one device.

    `apart`: the counters are in a slice of their own, as drivers publish them since Kubernetes 1.35.
    """
    made = document("DRA")
    made["engine"] = {"admission": "none"}
    work = made["steps"][0]["create"][0]
    work["metadata"]["labels"] = {}
    work["spec"] |= {"parallelism": 1, "completions": 1}
    (offered,) = (one for one in made["objects"] if one["kind"] == "ResourceSlice")
    counters = [{"name": "gpu-0-counters", "counters": _counters(98, 81920, range(8))}]
    devices = [
        {
            "name": f"gpu-0-{shape}-{number}",
            "consumesCounters": [{"counterSet": "gpu-0-counters", "counters": _counters(*SHAPES[shape])}],
        }
        for number, shape in enumerate(shapes)
    ]
    offered["spec"]["devices"] = devices
    if apart:
        offered["spec"]["pool"]["resourceSliceCount"] = 2
        spec = {**offered["spec"], "sharedCounters": counters}
        del spec["devices"]
        made["objects"].append({**offered, "metadata": {"name": "n1-counters"}, "spec": spec})
    else:
        offered["spec"]["sharedCounters"] = counters
    simulation = build_simulation(load_scenario([made]))
    simulation.advance(simulation.now + HOUR)
    return simulation


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize(("shape", "part"), [("1g", 1 / 7), ("2g", 1 / 3), ("3g", 1 / 2), ("whole", 1.0)])
def test_a_partition_costs_the_part_of_its_gpu_and_the_rest_is_idle(shape: str, part: float, apart: bool) -> None:
    snapshot = partitioned(shape, apart=apart).snapshot()
    found = cost_report(snapshot, Prices(), {})
    assert found.hourly == pytest.approx(PRICE)
    teams = {one.name: one.hourly for one in found.by[By.TEAM]}
    assert teams == pytest.approx({"b": part * PRICE} | ({"": (1 - part) * PRICE} if part < 1 else {}))


def test_of_many_partitions_of_one_gpu_the_node_costs_one_gpu() -> None:
    assert cost_report(partitioned("1g", "2g", "3g", "whole").snapshot(), Prices(), {}).hourly == pytest.approx(PRICE)


def test_the_work_on_a_partition_is_that_part_of_gpu_hours() -> None:
    snapshot = partitioned("1g").snapshot()
    (pod,) = (one for one in snapshot.pods.all() if one.node)
    assert device_counter(snapshot).gpus(pod) == pytest.approx(1 / 7)
    assert holdings_of(snapshot).shares == round(SHARES / 7)
