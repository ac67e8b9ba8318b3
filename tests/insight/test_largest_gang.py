"""The largest gang has one definition: per flavor and GPU model, the smaller of what nodes and quota allow."""

from pathlib import Path

import pytest

from gpuconsole.insight.data_gaps import IdleBound
from gpuconsole.insight.index.fragmentation import gang_limits, largest
from gpuconsole.insight.index.gpu_map import gpu_rows
from gpuconsole.insight.index.topology import domains
from gpuconsole.insight.overview import dashboard, gpu_totals
from gpuconsole.insight.sharing.slots import slots
from gpuconsole.model.clock import HOUR
from gpuconsole.model.cluster import Node
from gpuconsole.model.manifests import load
from gpuconsole.model.objects import Object
from gpuconsole.model.queues import LocalQueue, Quota, ResourceFlavor, StopPolicy
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.sim.scenario import build_simulation, load_scenario
from gpuconsole.ui import format as fmt
from gpuconsole.ui.answers.cluster_reports import slots_lines
from gpuconsole.ui.paint import painted
from gpuconsole.ui.screens.dashboard import gpu_lines
from gpuconsole.ui.screens.topology import DomainRow
from tests.support.snapshots import cluster_queue, group, node, pod, world

FIXTURE = Path(__file__).resolve().parents[2] / "fixtures" / "scenarios" / "default.yaml"
H100, A100 = {"accelerator": "nvidia-h100-80gb"}, {"accelerator": "nvidia-a100-80gb"}
FLAVORS = [ResourceFlavor(name="h100", node_labels=H100), ResourceFlavor(name="a100", node_labels=A100)]


def queue(name: str, **quotas: int) -> list[Object]:
    groups = (group({flavor: Quota(nominal) for flavor, nominal in quotas.items()}),)
    return [cluster_queue(name, resource_groups=groups), LocalQueue(namespace=name, name="lq", cluster_queue=name)]


def nodes(labels: dict[str, str], *gpus: int) -> list[Node]:
    kind = labels["accelerator"].rpartition("-")[0]
    return [node(f"{kind}-{number}", count, labels=labels) for number, count in enumerate(gpus)]


def shown(snapshot: Snapshot) -> dict[str, str]:
    """The largest gang on each screen."""
    limits = gang_limits(snapshot)
    answer, starts = slots(snapshot, IdleBound.EXACT)
    line = next(line for line in slots_lines(answer, starts) if line.startswith("cluster "))
    fits = "".join(text for text, _ in painted(gpu_lines(dashboard(snapshot).gpus)[2]))
    root = DomainRow(domains(snapshot)[0], 0, True, limits)
    return {
        "dashboard": fits.removeprefix("largest gang: ").partition(" (")[0].rsplit(" ", 1)[0],
        "slots": fmt.gang(answer.cluster.largest_gang),
        "slots as text": "present" if f"  {fmt.gang(answer.cluster.largest_gang)}  " in line else line,
        "topology": fmt.gang(root.largest_gang),
    }


MIXED: list[Object] = [
    *FLAVORS,
    *nodes(H100, 8, 8, 8),
    *nodes(A100, 8),
    *queue("small", h100=8, a100=8),
    *queue("large", h100=16, a100=4),
]


def test_quota_and_nodes_limit_the_gang_of_each_flavor_and_models_are_not_mixed() -> None:
    """Four idle nodes of eight GPUs: three h100, of which the largest queue could admit two, and one a100."""
    snapshot = world(MIXED)
    gangs = gang_limits(snapshot).gangs(gpu_rows(snapshot))
    assert [(g.flavor, g.model, g.pods, g.gpus, g.by_nodes, g.by_quota, g.queue) for g in gangs] == [
        ("a100", "a100-80gb", 2, 4, 2, 2, "small"),
        ("h100", "h100-80gb", 2, 8, 3, 2, "large"),
    ]
    assert fmt.gang_with_limits(largest(gangs)) == "2 × 8 h100 GPUs (nodes 3, quota 2)"


def test_without_kueue_only_nodes_limit_the_gang() -> None:
    snapshot = world([*nodes(H100, 8, 8, 8), *nodes(A100, 8)])
    assert fmt.gang_with_limits(gpu_totals(snapshot).largest_gang) == "3 × 8 h100-80gb GPUs (nodes 3)"


def test_a_queue_that_admits_nobody_gives_no_quota() -> None:
    stopped = cluster_queue("only", resource_groups=(group({"h100": Quota(16)}),), stop_policy=StopPolicy.HOLD)
    snapshot = world([*FLAVORS, *nodes(H100, 8, 8), stopped])
    assert gpu_totals(snapshot).largest_gang is None


def test_two_models_of_one_flavor_make_two_gangs() -> None:
    snapshot = world([ResourceFlavor(name="any"), *nodes(H100, 8, 8), *nodes(A100, 8, 8), *queue("q", any=32)])
    gangs = gang_limits(snapshot).gangs(gpu_rows(snapshot))
    assert [(one.flavor, one.model, one.pods, one.gpus) for one in gangs] == [
        ("any", "a100-80gb", 2, 8),
        ("any", "h100-80gb", 2, 8),
    ]


def test_dashboard_slots_and_topology_tell_the_same_gang_of_a_mixed_cluster() -> None:
    found = shown(world([*MIXED, pod("p", "nvidia-h100-0", (0, 1))]))
    assert found == {"dashboard": "2 × 8 h100", "slots": "2 × 8", "slots as text": "present", "topology": "2 × 8"}


@pytest.mark.parametrize("hours", [0, 1, 4])
def test_dashboard_slots_and_topology_tell_the_same_gang_of_the_default_fixture(hours: int) -> None:
    simulation = build_simulation(load_scenario(load([FIXTURE]).scenario, FIXTURE.name, folder=FIXTURE.parent))
    simulation.advance(simulation.now + hours * HOUR)
    found = shown(simulation.snapshot())
    assert found["dashboard"].startswith(found["slots"])
    assert (found["slots as text"], found["topology"]) == ("present", found["slots"])
