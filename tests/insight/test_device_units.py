"""MIG instances, time-sliced and MPS replicas and DRA devices are counted and drawn everywhere, with their unit."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from gpuconsole.insight.cost.rates import By, cost_report, hourly, node_hourly
from gpuconsole.insight.data_gaps import IdleBound
from gpuconsole.insight.health.alerts import AlertKind
from gpuconsole.insight.index.gpu_map import gpu_rows
from gpuconsole.insight.index.topology import domains
from gpuconsole.insight.overview import dashboard
from gpuconsole.insight.sharing.slots import slots
from gpuconsole.model.clock import MINUTE
from gpuconsole.model.devices import described
from gpuconsole.model.prices import Prices
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.scenario import build_simulation, load_scenario
from gpuconsole.ui.answers.cluster_reports import slots_lines
from gpuconsole.ui.paint import Cell, painted
from gpuconsole.ui.queue_table import GPUS, tree_rows, used_cell
from gpuconsole.ui.screens.dashboard import gpu_lines, waiting_lines
from gpuconsole.ui.screens.nodes import totals
from gpuconsole.ui.widgets.gpumap import ColourBy, GpuCellStyle
from gpuconsole.ui.workload_table import WorkloadRows

GPU, MIG = "nvidia.com/gpu", "nvidia.com/mig-3g.40gb"
QUEUE = "kueue.x-k8s.io/queue-name"
Manifest = dict[str, Any]


@dataclass(frozen=True)
class Kind:
    """One way to offer parts of GPUs, on a node with one GPU, or two devices."""

    resource: str
    total: int
    unit: str
    cell: str
    """What the list of workloads shows for one."""
    sharing: Mapping[str, object] | None = None


def _slicing(**more: object) -> Mapping[str, object]:
    return {"resources": [{"name": GPU, "replicas": 2}], **more}


KINDS = {
    "MIG single": Kind(
        GPU, 2, "MIG 3g.40gb instance", "1 MIG", {"mig": {"strategy": "single", "config": "all-3g.40gb"}}
    ),
    "MIG mixed": Kind(MIG, 2, "MIG 3g.40gb instance", "1 MIG", {"mig": {"config": "all-3g.40gb"}}),
    "time-slicing": Kind(GPU, 2, "time-sliced replica", "1 rep", {"timeSlicing": _slicing()}),
    "time-slicing, renamed": Kind(
        f"{GPU}.shared", 2, "time-sliced replica", "1 rep", {"timeSlicing": _slicing(renameByDefault=True)}
    ),
    "MPS": Kind(GPU, 2, "MPS replica", "1 rep", {"mps": _slicing()}),
    "DRA": Kind("claimed-gpus", 2, "DRA device", "1 dev"),
}


def _node(kind: Kind) -> Manifest:
    allocatable = {"cpu": "64", "memory": "512Gi", "pods": "110"} | ({GPU: "1"} if kind.sharing else {})
    labels = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB", "kubernetes.io/hostname": "n1"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n1", "labels": labels},
        "status": {"allocatable": allocatable},
    }


def _devices() -> list[Manifest]:
    api = "resource.k8s.io/v1"
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}
    selectors = [{"cel": {"expression": "device.driver == 'gpu.example.com'"}}]
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
    return [
        {
            "apiVersion": api,
            "kind": "DeviceClass",
            "metadata": {"name": "gpu.example.com"},
            "spec": {"selectors": selectors},
        },
        {
            "apiVersion": api,
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": "one", "namespace": "team"},
            "spec": {"spec": {"devices": {"requests": [request]}}},
        },
        {
            "apiVersion": api,
            "kind": "ResourceSlice",
            "metadata": {"name": "n1-gpus"},
            "spec": {
                "driver": "gpu.example.com",
                "nodeName": "n1",
                "pool": pool,
                "devices": [{"name": "gpu-0"}, {"name": "gpu-1"}],
            },
        },
    ]


def _job(name: str, kind: Kind, queued: bool) -> Manifest:
    container: Manifest = {"name": "main", "image": "example.com/work:1", "resources": {"requests": {"cpu": "1"}}}
    spec: Manifest = {"restartPolicy": "Never", "containers": [container]}
    if kind.sharing:
        container["resources"]["limits"] = {kind.resource: "1"}
    else:
        container["resources"]["claims"] = [{"name": "gpu"}]
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
    labels = {QUEUE: "lq"} if queued else {}
    notes = {"gpuconsole.io/duration": "1h"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "team", "labels": labels, "annotations": notes},
        "spec": {"template": {"spec": spec}},
    }


def _queues(kind: Kind) -> list[Manifest]:
    api = "kueue.x-k8s.io/v1beta2"
    flavors = [
        {
            "name": "a100",
            "resources": [{"name": kind.resource, "nominalQuota": "2"}, {"name": "cpu", "nominalQuota": "64"}],
        }
    ]
    groups = [{"coveredResources": [kind.resource, "cpu"], "flavors": flavors}]
    return [
        {"apiVersion": api, "kind": "ResourceFlavor", "metadata": {"name": "a100"}, "spec": {}},
        {
            "apiVersion": api,
            "kind": "ClusterQueue",
            "metadata": {"name": "cq"},
            "spec": {"namespaceSelector": {}, "resourceGroups": groups},
        },
        {
            "apiVersion": api,
            "kind": "LocalQueue",
            "metadata": {"name": "lq", "namespace": "team"},
            "spec": {"clusterQueue": "cq"},
        },
    ]


def text(cell: Cell) -> str:
    return "".join(piece for piece, _ in painted(cell))


def cluster(kind: Kind, *, kueue: bool, jobs: int) -> Snapshot:
    """A node with two of a kind after a minute, and jobs that want one each."""
    return simulation(kind, kueue=kueue, jobs=jobs).snapshot()


def simulation(kind: Kind, *, kueue: bool, jobs: int) -> Simulation:
    """The same, to go on with."""
    engine: Manifest = {"admission": "Kueue" if kueue else "none"}
    if kind.sharing:
        engine["sharing"] = kind.sharing
    elif kueue:
        mapping = {"name": kind.resource, "deviceClassNames": ["gpu.example.com"]}
        engine["kueueConfig"] = {
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "kind": "Configuration",
            "resources": {"deviceClassMappings": [mapping]},
        }
    objects = [_node(kind), *(_queues(kind) if kueue else []), *([] if kind.sharing else _devices())]
    document = {
        "engine": engine,
        "objects": objects,
        "steps": [{"create": [_job(f"job-{number}", kind, kueue) for number in range(jobs)]}],
    }
    made = build_simulation(load_scenario([document]))
    made.advance(made.now + MINUTE)
    return made


def _words(snapshot: Snapshot) -> dict[str, str]:
    """What the panels say."""
    numbers = dashboard(snapshot)
    return {
        "gpus": text(gpu_lines(numbers.gpus)[0]).partition(" in use")[0],
        "waiting": text(waiting_lines(numbers.waiting, numbers.time)[0]),
        "nodes": text(totals(gpu_rows(snapshot))).strip(),
    }


@pytest.mark.parametrize("kueue", [False, True], ids=["without Kueue", "with Kueue"])
@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_device_is_counted_with_its_unit(name: str, kueue: bool) -> None:
    kind = KINDS[name]
    snapshot = cluster(kind, kueue=kueue, jobs=3)
    assert _words(snapshot) == {
        "gpus": f"2 of 2 {kind.unit}s",
        "waiting": f"◐ 1 workload, 1 {kind.unit}",
        "nodes": f"1 node · 2 of 2 {kind.unit}s in use",
    }
    (row,) = gpu_rows(snapshot)
    look = GpuCellStyle(ColourBy.STATE, [row])
    assert [glyph for glyph, _ in look.row(row)] == ["▣", "▣"]
    assert text(look.legend()) == ("▣ nominal quota 2" if kueue else "▣ in use 2")
    assert [described(root.units) for root in domains(snapshot)] == [f"2 {kind.unit}s"]
    assert [root.used for root in domains(snapshot)] == [2]
    rows = WorkloadRows().update(snapshot).rows
    assert [row.shape for row in rows if row.workload.pod_sets] == [kind.cell] * 3


@pytest.mark.parametrize("name", KINDS)
def test_a_pod_for_which_there_is_no_device_needs_attention(name: str) -> None:
    kind = KINDS[name]
    found = dashboard(cluster(kind, kueue=False, jobs=3)).attention
    (line,) = [one for one in found if one.trouble is AlertKind.UNSCHEDULABLE]
    assert line.text.startswith(f"Job/team/job-2: 1 pod (1 {kind.unit}) unschedulable: 0/1 nodes are available")
    assert (line.table, line.key, line.gpus) == ("jobs", "Job/team/job-2", 1)


@pytest.mark.parametrize("kueue", [False, True], ids=["without Kueue", "with Kueue"])
@pytest.mark.parametrize("name", KINDS)
def test_the_table_of_queues_counts_devices_of_every_kind(name: str, kueue: bool) -> None:
    kind = KINDS[name]
    roots = dashboard(cluster(kind, kueue=kueue, jobs=3)).queues
    row = tree_rows(roots, {}, GPUS)[0]
    unit = "MIG" if kind.unit.startswith("MIG") else f"{kind.unit.rpartition(' ')[2]}s"
    assert text(used_cell(row)) == f"2 / 2 {unit}"
    assert (row.node.pending, row.node.pending_gpus, row.node.unit) == (1, 1, kind.unit)


@pytest.mark.parametrize("name", KINDS)
def test_slots_count_devices_of_every_kind(name: str) -> None:
    kind = KINDS[name]
    snapshot = cluster(kind, kueue=True, jobs=0)
    answer, starts = slots(snapshot, IdleBound.EXACT)
    assert [(row.name, row.unit, row.gpus, row.idle) for row in (*answer.flavors, answer.cluster)] == [
        ("a100", kind.unit, 2, 2),
        ("cluster", kind.unit, 2, 2),
    ]
    assert [(one.queue, one.unit, one.available, one.idle, one.now[1]) for one in starts] == [
        ("cq", kind.unit, 2, 2, 2)
    ]
    gang = dashboard(snapshot).gpus.largest_gang
    assert gang is not None
    assert (gang.pods, gang.gpus, gang.unit, gang.by_nodes, gang.by_quota) == (2, 1, kind.unit, 2, 2)
    assert f"a100         1  {kind.unit}" in "\n".join(slots_lines(answer, starts))


@pytest.mark.parametrize("name", [name for name in KINDS if name != "DRA"])
def test_a_node_costs_what_its_gpus_do_however_they_are_divided_or_shared(name: str) -> None:
    """Two halves of an A100 cost what the whole one does, and each pod has a half."""
    snapshot, prices = cluster(KINDS[name], kueue=True, jobs=2), Prices()
    whole = prices.gpu_hour["a100-80gb"]
    (node,) = snapshot.nodes.all()
    assert node_hourly(node, prices) == pytest.approx(whole)
    assert [hourly(snapshot, one, prices) for one in snapshot.workloads.all()] == pytest.approx([whole / 2] * 2)
    found = cost_report(snapshot, prices, {})
    assert found.hourly == pytest.approx(whole)
    teams = {one.name: (one.gpus, round(one.hourly, 6)) for one in found.by[By.TEAM] if one.name}
    # By compute slices an instance 3g is three sevenths of its GPU; of the seventh, nobody is charged.
    part = 6 / 7 if name == "MIG mixed" else 1.0
    assert teams == {"team": (2, round(whole * part, 6))}


def test_dra_devices_are_billed_to_those_who_claim_them() -> None:
    found = cost_report(cluster(KINDS["DRA"], kueue=True, jobs=1), Prices(), {})
    price = Prices().gpu_hour["a100-80gb"]
    assert found.hourly == pytest.approx(2 * price)
    assert [(one.name, one.gpus, round(one.hourly, 6)) for one in found.by[By.TEAM]] == [
        ("", 0, round(price, 6)),
        ("team", 1, round(price, 6)),
    ]
