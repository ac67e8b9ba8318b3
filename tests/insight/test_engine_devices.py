"""The queues of Volcano and KAI where GPUs are offered in parts: MIG instances, replicas, DRA devices."""

from collections.abc import Callable, Mapping

import pytest
from msgspec.structs import replace

from gpuconsole.insight.index.engine_queues import engine_shares, queues
from gpuconsole.insight.index.quota_tree import NodeKind, QuotaNode, QuotaUse
from gpuconsole.insight.pending.unscheduled_pods import takers
from gpuconsole.insight.sharing.slots import starts
from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.kai import UNLIMITED, KaiQueue, QueueResource
from gpuconsole.model.objects import Object
from gpuconsole.model.pod_template import Container, PodTemplate
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.volcano import PodGroup, VolcanoQueue
from gpuconsole.ui.answers.cluster_reports import shares_lines
from gpuconsole.ui.paint import painted
from gpuconsole.ui.queue_table import GPUS, tree_rows, used_cell
from gpuconsole.ui.screens.queues import about
from tests.insight.test_device_units import KINDS, Kind, cluster
from tests.support.snapshots import pod, world

GROUP = "scheduling.k8s.io/group-name"
SMALL, LARGE = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb"


def of_volcano(kind: Kind, capability: Mapping[str, int] | None = None) -> Snapshot:
    """Two devices: queue `a` has one and waits for one, queue `b` has the other one."""
    base = [thing for thing in cluster(kind, kueue=False, jobs=3).objects() if not isinstance(thing, PodGroup)]
    queue = VolcanoQueue(name="a", weight=1, capability=capability or {})
    groups = [PodGroup(namespace="team", name=name, queue=name, phase="Running") for name in ("a", "b")]

    def joined(one: Pod) -> Pod:
        return replace(one, annotations={GROUP: "b" if one.job.endswith("job-1") else "a"})

    things = [joined(thing) if isinstance(thing, Pod) else thing for thing in base]
    return world([*things, queue, VolcanoQueue(name="b", weight=1), *groups])


def of_kai(kind: Kind) -> Snapshot:
    """The same with queues of KAI; each has a quota of one GPU, and the first no more."""
    base = cluster(kind, kueue=False, jobs=3).objects()

    def joined(one: Pod) -> Pod:
        return replace(one, labels={"kai.scheduler/queue": "b" if one.job.endswith("job-1") else "a"})

    things = [joined(thing) if isinstance(thing, Pod) else thing for thing in base]
    limits = {"a": 1.0, "b": UNLIMITED}
    found = [KaiQueue(name=name, gpu=QueueResource(quota=1, limit=limit)) for name, limit in limits.items()]
    return world([*things, *found])


def shape(node: QuotaNode) -> tuple[str, int, int, int, int, str]:
    """Name, used, nominal, at most, pending devices, unit."""
    return node.name, node.gpus.used, node.gpus.nominal, node.gpus.potential, node.pending_gpus, node.unit


@pytest.mark.parametrize("name", [name for name in KINDS if name != "DRA"])
def test_volcanos_queues_count_devices_of_every_kind(name: str) -> None:
    kind = KINDS[name]
    a, b = queues(of_volcano(kind))
    assert (shape(a), shape(b)) == (("a", 1, 1, 2, 1, kind.unit), ("b", 1, 1, 2, 0, kind.unit))
    (limited, _) = queues(of_volcano(kind, {kind.resource: 1}))
    assert (limited.gpus.potential, limited.gpus.available) == (1, 0)


def test_volcanos_queues_use_dra_devices_and_limit_none() -> None:
    kind = KINDS["DRA"]
    a, b = queues(of_volcano(kind))
    assert (shape(a), shape(b)) == (("a", 1, 2, 2, 1, kind.unit), ("b", 1, 2, 2, 0, kind.unit))


@pytest.mark.parametrize("name", [name for name in KINDS if name != "MIG mixed"])
def test_kais_queues_count_devices_of_every_kind(name: str) -> None:
    kind = KINDS[name]
    a, b = queues(of_kai(kind))
    assert (shape(a), shape(b)) == (("a", 1, 1, 1, 1, kind.unit), ("b", 1, 1, 2, 0, kind.unit))


def test_kai_counts_a_mig_instance_as_its_compute_slices() -> None:
    """KAI 0.13 `GetGpusQuota`: 3g takes three of the quota."""
    a, b = queues(of_kai(KINDS["MIG mixed"]))
    assert (shape(a), shape(b)) == (("a", 3, 1, 1, 3, "compute slice"), ("b", 3, 1, 6, 0, "compute slice"))
    assert a.gpus.borrowed == 2
    assert a.policy == "over-quota weight 0 · a MIG instance counts as its compute slices"
    assert [(use.resource, use.used, use.potential) for use in b.flavors] == [(LARGE, 1, 2)]


@pytest.mark.parametrize("make", [of_volcano, of_kai], ids=["Volcano", "KAI"])
@pytest.mark.parametrize("name", KINDS)
def test_the_shares_and_the_table_of_queues_say_the_unit(name: str, make: Callable[[Kind], Snapshot]) -> None:
    snapshot = make(KINDS[name])
    found = engine_shares(snapshot)
    unit = found[0].unit
    assert unit == ("compute slice" if make is of_kai and name == "MIG mixed" else KINDS[name].unit)
    lines = shares_lines(None, found, snapshot.time)
    head = next(line for line in lines if line.startswith("QUEUE"))
    assert head.split() == ["QUEUE", "USED", "DESERVED", "SHARE", "PENDING", "ORDER", "UNIT", "RULES"]
    row = next(line for line in lines if line.startswith("a "))
    assert f" {unit} " in row
    assert int(row.split()[1]) == found[0].used
    first = tree_rows(queues(snapshot), {}, GPUS)[0]
    short = "MIG" if unit.startswith("MIG") else f"{unit.rpartition(' ')[2]}s"
    assert _text(used_cell(first)) == f"{found[0].used} / {found[0].deserved} {short}"
    said = " ".join(map(_text, about(first)))
    assert f"1 pending ({found[0].waiting} {unit}" in said
    assert f"  {unit}s: available {first.use.available}, max {first.use.potential}  " in said


def _text(cell: object) -> str:
    return "".join(piece for piece, _ in painted(cell))  # type: ignore[arg-type]


@pytest.mark.parametrize("make", [of_volcano, of_kai], ids=["Volcano", "KAI"])
@pytest.mark.parametrize("name", KINDS)
def test_slots_tell_what_starts_in_the_queues_in_their_unit(name: str, make: Callable[[Kind], Snapshot]) -> None:
    found = {one.queue: one for one in starts(make(KINDS[name]))}
    assert {one.unit for one in found.values()} == {KINDS[name].unit}
    assert [(one.idle, one.now[1]) for one in found.values()] == [(0, 0), (0, 0)]


def test_slots_of_a_kai_queue_name_its_quota_as_kai_counts_it() -> None:
    (one,) = {one.queue: one for one in starts(of_kai(KINDS["MIG mixed"])) if one.queue == "a"}.values()
    assert one.text.startswith("it uses 3 of its 1 deserved compute slice")


def test_who_holds_a_volcano_queue_is_told_in_units() -> None:
    snapshot = of_volcano(KINDS["MIG mixed"])
    assert takers(snapshot, "b") == ("team/b uses 1 MIG 3g.40gb instance of queue b",)


def mixed(*more: Object) -> Snapshot:
    """Whole GPUs, small and large instances: 4, 7 and 2; queue `a` has 2, 3 and 1 of them."""
    offers = {"nvidia.com/gpu": 4, SMALL: 7, LARGE: 2}
    labels = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
    room = Node(name="n1", labels=labels, capacity=offers, allocatable=offers)
    template = PodTemplate(containers=(Container(requests={SMALL: 3, LARGE: 1}),))
    pods = (pod("parts", "n1", template=template), pod("whole", "n1", (0, 1)))
    marks, labels = {GROUP: "g"}, {"kai.scheduler/queue": "a"}
    return world([room, *(replace(one, annotations=marks, labels=labels) for one in pods), *more])


def test_queues_of_clusters_with_several_units_count_devices_and_tell_each_resource() -> None:
    group = PodGroup(namespace="team", name="g", queue="a", phase="Running")
    deserved = {"nvidia.com/gpu": 4, SMALL: 2, LARGE: 2}
    (a,) = queues(mixed(VolcanoQueue(name="a", deserved=deserved, capability={SMALL: 5}), group))
    assert shape(a) == ("a", 6, 8, 11, 0, "device")
    assert [(use.resource, use.used, use.nominal, use.available) for use in a.flavors] == [
        ("nvidia.com/gpu", 2, 4, 2),
        (SMALL, 3, 2, 2),
        (LARGE, 1, 2, 1),
    ]
    assert a.gpus.borrowed == 1
    (share,) = engine_shares(mixed(VolcanoQueue(name="a", deserved=deserved), group))
    assert share.share == 1.5
    (kai,) = queues(mixed(KaiQueue(name="a", gpu=QueueResource(quota=8, limit=12))))
    assert shape(kai) == ("a", 2 + 3 + 3, 8, 12, 0, "GPU or compute slice")
    assert [(use.resource, use.used, use.available) for use in kai.flavors] == [
        ("nvidia.com/gpu", 2, 4),
        (SMALL, 3, 4),
        (LARGE, 1, 1),
    ]
    first = tree_rows((kai,), {}, GPUS)[0]
    assert _text(about(first)[0]) == (
        " KAI queue a  GPU or compute slices: available gpu 4 (max 6), mig-1g.10gb 4 (max 7), mig-3g.40gb 1 (max 2)"
    )


@pytest.mark.parametrize(("used", "text"), [(8, "8 / 27 devices"), (15, "15 / 27 dev"), (1200, "1,200 / 27 dev")])
def test_units_are_shortened_where_the_column_is_too_narrow(used: int, text: str) -> None:
    use = QuotaUse(resource="gpu", nominal=27, used=used)
    node = QuotaNode(kind=NodeKind.CLUSTER_QUEUE, name="q", gpus=use, unit="device")
    assert _text(used_cell(tree_rows([node], {}, GPUS)[0])) == text
