"""Topology-aware scheduling: where pods go, and what they are told when there is no place."""

from collections.abc import Mapping
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from gpuconsole.model.cluster import Node
from gpuconsole.model.labels import HOSTNAME, NodeTerm, PreferredTerm, Requirement, Taint, Toleration
from gpuconsole.model.objects import Object
from gpuconsole.model.pod_template import PodSet, PodTemplate, TopologyRequest
from gpuconsole.model.queues import BorrowWithinCohort, ResourceFlavor, Topology
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.config import KueueConfig
from tests.support.kueue_cluster import (
    ANY,
    GPU,
    LOWER,
    World,
    admitted,
    cohort,
    pods,
    queue,
    refused,
    victims,
    workload,
)

BLOCK, RACK = "block", "rack"
BY_HOST = Topology(name="topo", levels=(BLOCK, RACK, HOSTNAME))
BY_RACK = Topology(name="topo", levels=(BLOCK, RACK))
FLAVOR = ResourceFlavor(name="f", node_labels={"pool": "gpu"}, topology="topo")


def node(block: int, rack: int, host: int, gpus: int) -> Node:
    name = f"n{block}{rack}{host}"
    labels = {"pool": "gpu", BLOCK: f"b{block}", RACK: f"r{block}{rack}", HOSTNAME: name}
    return Node(name=name, labels=labels, allocatable={GPU: gpus, "pods": 110})


def site(*blocks: tuple[tuple[int, ...], ...], topology: Topology = BY_HOST) -> tuple[Object, ...]:
    """Blocks of racks of hosts, each host given by its GPUs."""
    nodes = [
        node(b, r, h, gpus)
        for b, racks in enumerate(blocks)
        for r, hosts in enumerate(racks)
        for h, gpus in enumerate(hosts)
    ]
    return (topology, *nodes, FLAVOR)


def changed(things: tuple[Object, ...], **facts: object) -> tuple[Object, ...]:
    """The same site with another first host."""
    return tuple(replace(t, **facts) if isinstance(t, Node) and t.name == "n000" else t for t in things)


def required(level: str) -> TopologyRequest:
    return TopologyRequest(required=level)


def preferred(level: str) -> TopologyRequest:
    return TopologyRequest(preferred=level)


UNCONSTRAINED = TopologyRequest(unconstrained=True)


def places(world: World, name: str) -> Mapping[str, Mapping[str, int]]:
    """Pod set → last value of each domain → pods."""
    admission = world.workloads[name].admission
    if admission is None:
        return {}
    return {p.name: {domain.values[-1]: domain.count for domain in p.topology} for p in admission.pod_sets}


class Case(NamedTuple):
    things: tuple[Object, ...]
    pod_sets: tuple[PodSet, ...]
    want: Mapping[str, Mapping[str, int]]


def one(count: int, request: TopologyRequest | None, gpus: int = 1) -> tuple[PodSet, ...]:
    return (pods(count, gpus, topology=request),)


RACKS = site(((5,), (4,), (3,)))

PLACES: dict[str, Case] = {
    "the smallest rack that is large enough": Case(RACKS, one(4, required(RACK)), {"main": {"n010": 4}}),
    "the fullest racks first, the last one by best fit": Case(
        RACKS, one(8, preferred(RACK)), {"main": {"n000": 5, "n020": 3}}
    ),
    "preferred climbs a level when no domain is large enough": Case(
        site(((4, 4), (2,)), ((9,),)), one(9, preferred(HOSTNAME)), {"main": {"n100": 9}}
    ),
    "required block, then as few hosts as possible": Case(
        site(((2, 2), (2,)), ((4, 2),)), one(6, required(BLOCK)), {"main": {"n000": 2, "n001": 2, "n010": 2}}
    ),
    "at the top level preferred takes several": Case(
        site(((4,),), ((3,),)), one(7, preferred(BLOCK)), {"main": {"n000": 4, "n100": 3}}
    ),
    "unconstrained fills the smallest that is enough": Case(
        site(((5, 2, 3),)), one(3, UNCONSTRAINED), {"main": {"n002": 3}}
    ),
    "or the smallest ones in turn": Case(
        site(((5, 2, 3),)), one(6, UNCONSTRAINED), {"main": {"n001": 2, "n002": 3, "n000": 1}}
    ),
    "nobody asked, but the queue has only such flavors": Case(site(((2, 5),)), one(2, None), {"main": {"n000": 2}}),
    "larger pods fit whole": Case(site(((3, 4),)), one(2, required(RACK), 2), {"main": {"n001": 2}}),
    "slices stay together": Case(
        site(((3, 3), (4,))),
        one(4, TopologyRequest(required=BLOCK, slice_required=HOSTNAME, slice_size=2)),
        {"main": {"n010": 4}},
    ),
    "and leave a remainder unused": Case(
        site(((3, 3), (3,))),
        one(6, TopologyRequest(required=BLOCK, slice_required=HOSTNAME, slice_size=2)),
        {"main": {"n000": 2, "n001": 2, "n010": 2}},
    ),
    "slices inside slices": Case(
        site(((3, 4),), ((2, 2), (8,))),
        one(8, TopologyRequest(required=BLOCK, slice_constraints=((RACK, 4), (HOSTNAME, 2)))),
        {"main": {"n110": 8}},
    ),
    "inner slices start with the host that has the least room": Case(
        site(((1, 4), (3, 4))),
        one(8, TopologyRequest(required=BLOCK, slice_constraints=((RACK, 4), (HOSTNAME, 2)))),
        {"main": {"n001": 4, "n010": 2, "n011": 2}},
    ),
    "a leader goes where its workers are": Case(
        site(((3,), (5,))),
        (
            pods(1, 1, name="leader", topology=TopologyRequest(required=RACK, group="g")),
            pods(4, 1, name="workers", topology=TopologyRequest(required=RACK, group="g")),
        ),
        {"leader": {"n010": 1}, "workers": {"n010": 4}},
    ),
    "pod sets are placed one after the other": Case(
        site(((4, 3),)),
        (pods(3, name="x", topology=required(HOSTNAME)), pods(4, name="y", topology=required(HOSTNAME))),
        {"x": {"n001": 3}, "y": {"n000": 4}},
    ),
    "without hosts the rack is the place": Case(
        site(((2, 2), (3,)), topology=BY_RACK), one(4, required(RACK)), {"main": {"r00": 4}}
    ),
    "a node that is cordoned does not count": Case(
        tuple(
            replace(t, unschedulable=True) if isinstance(t, Node) and t.name == "n000" else t for t in site(((4, 4),))
        ),
        one(2, required(RACK)),
        {"main": {"n001": 2}},
    ),
    "nor one of another pool": Case(
        changed(site(((4, 4),)), labels={}),
        one(2, required(RACK)),
        {"main": {"n001": 2}},
    ),
    "a node selector chooses hosts": Case(
        site(((4, 4),)),
        (pods(2, topology=required(RACK), template=PodTemplate(node_selector={HOSTNAME: "n001"})),),
        {"main": {"n001": 2}},
    ),
    "tainted nodes are for those that tolerate them": Case(
        tuple(
            replace(t, taints=(Taint("x"),)) if isinstance(t, Node) and t.name == "n000" else t for t in site(((1, 4),))
        ),
        (pods(1, topology=required(RACK), template=PodTemplate(tolerations=(Toleration("x", "Exists"),))),),
        {"main": {"n000": 1}},
    ),
}


@pytest.mark.parametrize("case", PLACES.values(), ids=PLACES.keys())
def test_places(case: Case) -> None:
    world = World(*case.things, queue("q", 100)).run(workload("w", "q", pod_sets=case.pod_sets))
    assert places(world, "w") == case.want, world.message("w")


NO_PLACE: dict[str, tuple[tuple[Object, ...], tuple[PodSet, ...], str]] = {
    "too many for any rack": (
        RACKS,
        one(6, required(RACK)),
        'topology "topo" allows to fit only 5 out of 6 pod(s)',
    ),
    "too many for all of it": (
        RACKS,
        one(13, preferred(RACK)),
        'topology "topo" allows to fit only 12 out of 13 pod(s)',
    ),
    "too large for any host": (
        RACKS,
        one(1, required(RACK), 6),
        'topology "topo" doesn\'t allow to fit any of 1 pod(s). Total nodes: 3; excluded: resource "nvidia.com/gpu": 3',
    ),
    "what keeps hosts out is counted": (
        changed(site(((4, 4), (4,))), taints=(Taint("gpu", "bad"),)),
        (pods(9, topology=preferred(RACK), template=PodTemplate(node_selector={HOSTNAME: "n010"})),),
        'topology "topo" allows to fit only 4 out of 9 pod(s). Total nodes: 3; excluded: nodeSelector: 1, '
        'taint "gpu=bad:NoSchedule": 1',
    ),
    "slices are counted as slices": (
        site(((3, 3),)),
        one(9, TopologyRequest(required=RACK, slice_required=HOSTNAME, slice_size=3)),
        'topology "topo" allows to fit only 2 out of 3 slice(s)',
    ),
    "layers are counted one by one": (
        site(((3, 4),)),
        one(8, TopologyRequest(required=BLOCK, slice_constraints=((RACK, 4), (HOSTNAME, 2)))),
        'topology "topo" doesn\'t allow to fit; 1/2 slice(s) fit on level rack; '
        "3/4 slice(s) fit on level kubernetes.io/hostname",
    ),
}


@pytest.mark.parametrize(("things", "pod_sets", "want"), NO_PLACE.values(), ids=NO_PLACE.keys())
def test_what_is_told_when_there_is_no_place(
    things: tuple[Object, ...], pod_sets: tuple[PodSet, ...], want: str
) -> None:
    world = World(*things, queue("q", 100)).run(workload("w", "q", pod_sets=pod_sets))
    assert world.message("w") == f"couldn't assign flavors to pod set main: {want}"


MISMATCHES: dict[str, tuple[ResourceFlavor, TopologyRequest | None, str]] = {
    "a flavor without a topology": (
        ResourceFlavor(name="plain"),
        required(RACK),
        'Flavor "plain" does not support TopologyAwareScheduling',
    ),
    "a level that the topology does not have": (
        FLAVOR,
        required("zone"),
        'Flavor "f" does not contain the requested level',
    ),
}


@pytest.mark.parametrize(("flavor", "request_", "want"), MISMATCHES.values(), ids=MISMATCHES.keys())
def test_flavors_that_cannot_place(flavor: ResourceFlavor, request_: TopologyRequest, want: str) -> None:
    world = World(*site(((4,),)), flavor, queue("q", {flavor.name: 8}), flavors=())
    world.run(workload("w", "q", pod_sets=one(2, request_)))
    assert world.message("w") == f"couldn't assign flavors to pod set main: {want}"


def test_a_flavor_for_topologies_only_refuses_others() -> None:
    world = World(*site(((4,),)), queue("q", {"f": 8, "g": 0}), flavors=("g",))
    world.run(workload("w", "q", 2))
    assert world.message("w") == (
        'couldn\'t assign flavors to pod set main: Flavor "f" supports only TopologyAwareScheduling, insufficient '
        "quota for nvidia.com/gpu in flavor g, previously considered podsets requests (0) + current podset request (2)"
        " > maximum capacity (0)"
    )


def on_one_host(name: str, where: str, gpus: int, *, created: int = 0, priority: int = 0) -> Workload:
    """Single-GPU pods that have to share a host."""
    return workload(name, where, priority=priority, created=created, pod_sets=one(gpus, required(HOSTNAME)))


def test_places_are_taken_until_their_pods_are_gone() -> None:
    world = World(*site(((4, 4),)), queue("q", 100))
    world.run(on_one_host("x", "q", 3), on_one_host("y", "q", 3, created=1), on_one_host("z", "q", 2, created=2))
    assert (places(world, "x"), places(world, "y")) == ({"main": {"n000": 3}}, {"main": {"n001": 3}})
    assert world.running == {"x", "y"}
    world.finish("x")
    world.settle()
    assert places(world, "z") == {"main": {"n000": 2}}


def test_heads_of_two_queues_do_not_end_on_the_same_host() -> None:
    """Both were nominated for the best fit; the second one looks again and finds another host in the same cycle."""
    world = World(*site(((4, 4),)), queue("a", 8), queue("b", 8))
    world.apply(on_one_host("x", "a", 3), on_one_host("y", "b", 3, created=1))
    assert admitted(world.cycle()) == ["x", "y"]
    assert (places(world, "x"), places(world, "y")) == ({"main": {"n000": 3}}, {"main": {"n001": 3}})


def test_without_a_second_look_it_waits_a_cycle() -> None:
    config = KueueConfig(gates={"TASRecomputeAssignmentWithinSchedulingCycle": False})
    world = World(*site(((4, 4),)), queue("a", 8), queue("b", 8), config=config)
    world.apply(on_one_host("x", "a", 3), on_one_host("y", "b", 3, created=1))
    assert admitted(world.cycle()) == ["x"]
    assert world.message("y") == "Workload no longer fits after processing another workload"
    assert admitted(world.cycle()) == ["y"]


def test_scattered_room_is_made_whole_by_preemption() -> None:
    """Three GPUs are free, but not on one host: the newest of the lowest priority makes room on its own."""
    world = World(*site(((4, 4),)), queue("q", 8, within=LOWER))
    world.run(on_one_host("x", "q", 2), on_one_host("y", "q", 3, created=1), admitted=True)
    world.apply(on_one_host("w", "q", 3, priority=9))
    decisions = world.cycle()
    assert victims(decisions) == {"y": "InClusterQueue"}
    assert refused(decisions)["w"] == (
        'couldn\'t assign flavors to pod set main: topology "topo" allows to fit only 2 out of 3 pod(s). '
        "Pending the preemption of 1 workload(s)"
    )
    assert admitted(world.cycle()) == ["w"]
    assert places(world, "w") == {"main": {"n001": 3}}


def test_a_place_is_kept_for_one_that_finds_nobody_to_evict() -> None:
    world = World(*site(((4, 4),)), queue("a", 9), queue("b", 8))
    world.run(on_one_host("x", "a", 2), on_one_host("y", "a", 3, created=1), admitted=True)
    world.apply(on_one_host("big", "a", 4, priority=9), on_one_host("z", "b", 2, created=5))
    decisions = world.cycle()
    assert (admitted(decisions), victims(decisions)) == ([], {})
    assert 'topology "topo" allows to fit only 2 out of 4 pod(s)' in world.message("big")


def test_a_second_look_finds_other_victims() -> None:
    """It was to have the second host; another head takes a GPU there, so the first host is cleared instead."""
    world = World(*site(((4, 4),)), queue("a", 20, within=LOWER), queue("b", 20))
    world.run(on_one_host("p", "a", 4, priority=-1), on_one_host("r", "a", 3, priority=-1, created=1), admitted=True)
    world.apply(on_one_host("x", "b", 1, priority=9), on_one_host("y", "a", 4, priority=5))
    decisions = world.cycle()
    assert (admitted(decisions), victims(decisions)) == (["x"], {"p": "InClusterQueue"})
    assert admitted(world.cycle()) == ["y"]
    assert places(world, "y") == {"main": {"n000": 4}}


def test_a_second_look_finds_no_victims_among_those_admitted_in_the_same_cycle() -> None:
    """Both are nominated for the only host. The older one gets it: from then on it is counted, but no candidate."""
    borrow = BorrowWithinCohort(LOWER)
    borrowers = (queue(name, cohort="c", reclaim=ANY, borrow=borrow) for name in "ab")
    first_come = KueueConfig(gates={"PrioritySortingWithinCohort": False})
    world = World(*site(((4,),)), cohort("c", 20), *borrowers, config=first_come)
    world.apply(on_one_host("x", "a", 3), on_one_host("y", "b", 3, created=1, priority=9))
    decisions = world.cycle()
    assert (admitted(decisions), victims(decisions)) == (["x"], {})
    world.session.requeue_all_inadmissible(world.now)
    assert victims(world.cycle()) == {"x": "InCohortReclaimWhileBorrowing"}


def test_new_nodes_wake_those_that_wait_for_a_place() -> None:
    world = World(*site(((2,),)), queue("q", 8)).run(on_one_host("w", "q", 4))
    assert world.waiting("q") == ["(w)"]
    world.apply(node(0, 0, 1, 4))
    world.session.requeue_inadmissible(world.now)
    world.settle()
    assert places(world, "w") == {"main": {"n001": 4}}


def test_flavors_of_the_same_nodes_see_each_others_pods() -> None:
    other = ResourceFlavor(name="g", node_labels={"pool": "gpu"}, topology="topo")
    world = World(*site(((4,),)), other, queue("a", {"f": 8}), queue("b", {"g": 8}), flavors=())
    world.run(on_one_host("x", "a", 3), admitted=True)
    assert world.run(on_one_host("y", "b", 2, created=1)).running == {"x"}


def test_pods_on_nodes_that_their_flavor_selects_no_longer_are_still_seen() -> None:
    other = ResourceFlavor(name="g", node_labels={"pool": "gpu"}, topology="topo")
    world = World(*site(((4,),)), other, queue("a", {"f": 8}), queue("b", {"g": 8}), flavors=())
    world.run(on_one_host("x", "b", 3), admitted=True)
    world.apply(replace(other, node_labels={"pool": "elsewhere"}))
    assert world.run(on_one_host("y", "a", 2, created=1)).running == {"x"}
    assert world.run(on_one_host("z", "a", 1, created=2)).running == {"x", "z"}


BALANCED = KueueConfig(gates={"TASBalancedPlacement": True})
EVEN: dict[str, Case] = {
    "racks get the same": Case(site(((4,), (4,), (4,))), one(6, preferred(RACK)), {"main": {"n000": 3, "n010": 3}}),
    "what is left over goes to the roomiest": Case(
        site(((5,), (4,))), one(7, preferred(RACK)), {"main": {"n000": 4, "n010": 3}}
    ),
    "the block that allows the most on each is taken": Case(
        site(((5,), (1,)), ((3,), (3,))), one(6, preferred(RACK)), {"main": {"n100": 3, "n110": 3}}
    ),
    "hosts that hold too few are left out": Case(
        site(((3, 1), (3, 3))), one(6, preferred(RACK)), {"main": {"n010": 3, "n011": 3}}
    ),
    "where nothing is even the best fit is taken": Case(
        site(((4,),), ((3,),)), one(7, preferred(RACK)), {"main": {"n000": 4, "n100": 3}}
    ),
    "a required level is not spread": Case(site(((6,), (3,))), one(6, required(RACK)), {"main": {"n000": 6}}),
}


@pytest.mark.parametrize("name", EVEN)
def test_balanced_placement_spreads_pods_evenly(name: str) -> None:
    case = EVEN[name]
    world = World(*case.things, queue("q", 100), config=BALANCED).run(workload("w", "q", pod_sets=case.pod_sets))
    assert places(world, "w") == case.want


LIKING = KueueConfig(gates={"TASRespectNodeAffinityPreferred": True})


def likes(host: str) -> PodTemplate:
    term = NodeTerm(expressions=(Requirement(HOSTNAME, "In", (host,)),))
    return PodTemplate(preferred=(PreferredTerm(10, term),))


HOSTS = site(((2, 5), (4, 3)))
LIKED: dict[str, tuple[PodSet, Mapping[str, int]]] = {
    "a host that is liked comes before one that fits better": (
        pods(2, topology=required(HOSTNAME), template=likes("n001")),
        {"n001": 2},
    ),
    "one that is liked but too small is passed over where the level is required": (
        pods(3, topology=required(HOSTNAME), template=likes("n000")),
        {"n011": 3},
    ),
    "a rack is liked for its hosts": (pods(4, topology=required(RACK), template=likes("n011")), {"n011": 3, "n010": 1}),
}


@pytest.mark.parametrize("name", LIKED)
def test_preferred_nodes_come_first(name: str) -> None:
    pod_set, want = LIKED[name]
    world = World(*HOSTS, queue("q", 100), config=LIKING).run(workload("w", "q", pod_sets=[pod_set]))
    assert places(world, "w") == {"main": want}


def test_flavors_of_the_same_nodes_do_not_see_each_other_without_the_gate() -> None:
    twin = replace(FLAVOR, name="g")
    big = pods(1, 4, topology=required(HOSTNAME))
    for gates, second in ({}, False), ({"TASHandleOverlappingFlavors": False}, True):
        world = World(*site(((4,),)), twin, queue("q", 8), queue("p", {"g": 8}), config=KueueConfig(gates=gates))
        world.run(workload("w", "q", pod_sets=(big,)), admitted=True)
        world.run(workload("v", "p", pod_sets=(big,)))
        assert ("v" in world.running) is second


def test_a_change_of_a_node_that_scheduling_does_not_look_at_wakes_nobody() -> None:
    things = site(((2,),))
    world = World(*things, queue("q", 8)).run(workload("w", "q", pod_sets=one(3, required(RACK))))
    world.session.requeue_inadmissible(world.now)
    world.apply(*changed(things, uid="another", created=1))
    assert not world.session.has_requeue_due
    world.apply(*changed(things, allocatable={GPU: 3, "pods": 110}))
    assert world.session.has_requeue_due


def elastic(name: str, count: int, old: str = "") -> Workload:
    notes = {"kueue.x-k8s.io/elastic-job": "true"}
    if old:
        notes["kueue.x-k8s.io/workload-slice-replacement-for"] = f"team/{old}"
    return replace(workload(name, "q", pod_sets=one(count, UNCONSTRAINED)), annotations=notes)


@pytest.mark.parametrize(
    ("gate", "count", "want"),
    [
        (True, 6, {"n000": 3, "n001": 2, "n002": 1}),
        (True, 4, {"n000": 3, "n002": 1}),
        (True, 2, {"n000": 2}),
        (False, 2, {"n001": 2}),
    ],
    ids=["new pods go beside those that run", "the fullest is best", "the last ones leave", "only behind its gate"],
)
def test_pods_of_an_elastic_workload_stay_where_they_run(gate: bool, count: int, want: Mapping[str, int]) -> None:
    config = KueueConfig(gates={"ElasticJobsViaWorkloadSlicesWithTAS": gate})
    world = World(*site(((3, 2, 1),)), queue("q", 8), config=config)
    world.run(elastic("w", 3), admitted=True)
    assert places(world, "w") == {"main": {"n000": 3}}
    world.run(elastic("more", count, old="w"))
    assert places(world, "more") == {"main": want}


def test_an_elastic_workload_may_not_ask_for_a_domain_of_its_own() -> None:
    config = KueueConfig(gates={"ElasticJobsViaWorkloadSlicesWithTAS": True})
    world = World(*site(((3,),)), queue("q", 8), config=config)
    asking = replace(elastic("w", 2), pod_sets=one(2, required(RACK)))
    world.run(asking)
    assert world.message("w") == (
        "failed to assign flavors to pod set main: required topology is not supported with ElasticJobsViaWorkloadSlices"
    )
