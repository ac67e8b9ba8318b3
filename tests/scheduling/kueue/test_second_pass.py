"""The second pass: places that are found late, and places found anew because a node failed."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
import pytest
from msgspec.structs import replace

from gpuconsole.model.clock import SECOND
from gpuconsole.model.cluster import Node
from gpuconsole.model.events import Admit, Evict, KeepWaiting
from gpuconsole.model.objects import Object
from gpuconsole.model.pod_template import PodSet, TopologyRequest
from gpuconsole.model.queues import AdmissionCheck, CheckRule
from gpuconsole.model.workloads import CheckState, PodSetUpdate, Workload
from gpuconsole.scheduling.kueue import conditions
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.session import SessionState
from gpuconsole.scheduling.kueue.workloads import second_pass_delay
from tests.scheduling.kueue.test_topology import BLOCK, RACK, UNCONSTRAINED, places, preferred, required, site
from tests.support.decision_events import events_for
from tests.support.kueue_cluster import LOWER, World, admitted, pods, queue, victims, workload

PATIENT = KueueConfig(gates={"TASFailedNodeReplacementFailFast": False})


def fail(world: World, name: str, *nodes: str) -> None:
    """Nodes of a workload fail: they are gone, and the workload says so."""
    for node in nodes:
        world.session.delete("nodes", node, world.now)
    world.apply(replace(world.workloads[name], unhealthy_nodes=nodes))


def running(things: tuple[Object, ...], pod_sets: tuple[PodSet, ...], config: KueueConfig = PATIENT) -> World:
    world = World(*things, queue("q", 100), config=config)
    return world.run(workload("w", "q", pod_sets=pod_sets), admitted=True)


class Replaced(NamedTuple):
    things: tuple[Object, ...]
    request: TopologyRequest
    size: int
    before: Mapping[str, int]
    failed: str
    after: Mapping[str, int]


REPLACED: dict[str, Replaced] = {
    "any rack will do if the node had all of the pods": Replaced(
        site(((2, 2, 4), (8,))), required(RACK), 3, {"n002": 3}, "n002", {"n000": 2, "n001": 1}
    ),
    "within the rack that was required": Replaced(
        site(((2, 2, 3), (1,))), required(RACK), 4, {"n000": 1, "n002": 3}, "n000", {"n001": 1, "n002": 3}
    ),
    "anywhere if the rack was only preferred": Replaced(
        site(((2, 2), (4,))), preferred(BLOCK), 5, {"n000": 1, "n010": 4}, "n000", {"n001": 1, "n010": 4}
    ),
    "on a host that has pods of the workload already": Replaced(
        site(((2, 3),)), UNCONSTRAINED, 4, {"n000": 2, "n001": 2}, "n000", {}
    ),
    "a slice stays whole": Replaced(
        site(((1, 1, 1), (2, 2))),
        TopologyRequest(required=BLOCK, slice_required=RACK, slice_size=2),
        6,
        {"n000": 1, "n001": 1, "n010": 2, "n011": 2},
        "n000",
        {"n001": 1, "n002": 1, "n010": 2, "n011": 2},
    ),
}


@pytest.mark.parametrize("case", REPLACED.values(), ids=REPLACED)
def test_only_the_pods_of_a_failed_node_move(case: Replaced) -> None:
    world = running(case.things, (pods(case.size, 1, topology=case.request),))
    assert places(world, "w") == {"main": case.before}
    fail(world, "w", case.failed)
    decisions = world.cycle()
    if not case.after:
        assert [type(decision) for decision in decisions] == [KeepWaiting]
        return
    assert [type(decision) for decision in decisions] == [Admit]
    assert places(world, "w") == {"main": case.after}
    assert world.workloads["w"].unhealthy_nodes == ()
    assert world.workloads["w"].admitted


def test_the_quota_of_a_replaced_workload_counts_once() -> None:
    world = running(site(((2, 2),)), (pods(2, 1, topology=required(RACK)),))
    free = world.session.available("q", "f", "nvidia.com/gpu")
    fail(world, "w", "n000")
    world.cycle()
    assert world.session.available("q", "f", "nvidia.com/gpu") == free
    world.run(workload("next", "q", pod_sets=(pods(1, 1, topology=required(RACK)),)))
    assert "next" not in world.running


def test_nobody_takes_a_place_in_the_cycle_in_which_it_is_found() -> None:
    """To the others of that cycle a workload still stands where it stood when the cycle began."""
    world = World(*site(((2,), (2,))), queue("q", 100, within=LOWER), config=PATIENT)
    world.run(workload("w", "q", pod_sets=(pods(2, 1, topology=required(RACK)),)), admitted=True)
    fail(world, "w", "n000")
    world.apply(workload("urgent", "q", priority=9, pod_sets=(pods(2, 1, topology=required(RACK)),)))
    decisions = world.cycle()
    assert (admitted(decisions), victims(decisions)) == (["w"], {})
    assert victims(world.cycle()) == {"w": "InClusterQueue"}


def test_without_another_place_it_is_tried_again_with_growing_pauses() -> None:
    assert [second_pass_delay(round) // SECOND for round in range(1, 9)] == [1, 2, 4, 8, 16, 30, 30, 30]
    world = running(site(((2,), (2,))), (pods(2, 1, topology=required(RACK)),))
    world.run(workload("other", "q", pod_sets=(pods(2, 1, topology=required(RACK)),)), admitted=True)
    fail(world, "w", "n000")
    start = world.now
    told = {}
    for _ in range(16):
        for decision in world.cycle():
            told[(world.now - start) // SECOND] = decision
    message = (
        "couldn't assign flavors to pod set main: topology \"topo\" doesn't allow to fit any of 2 pod(s)."
        ' Total nodes: 1; excluded: resource "nvidia.com/gpu": 1'
    )
    assert told == dict.fromkeys((1, 3, 7, 15), KeepWaiting("team/w", message))
    assert world.workloads["w"].admitted
    assert [
        event.reason for event in events_for(told[1], world.workloads["w"], world.workloads["w"], {}, PATIENT, 0)
    ] == ["SecondPassFailed"]
    world.finish("other")
    while world.workloads["w"].unhealthy_nodes:
        world.cycle()
    assert places(world, "w") == {"main": {"n010": 2}}


def test_by_default_it_is_evicted_when_no_other_place_is_found() -> None:
    world = running(site(((2,),)), (pods(2, 1, topology=required(RACK)),), KueueConfig())
    fail(world, "w", "n000")
    message = "Workload was evicted as there was no replacement for unhealthy node(s): n000"
    detail = "couldn't assign flavors to pod set main: no topology domains at level: rack"
    assert world.cycle() == [Evict("team/w", "NodeFailures", message, detail)]
    evicted = world.workloads["w"].condition("Evicted")
    assert evicted is not None
    assert (evicted.reason, evicted.message) == ("NodeFailures", message)
    assert world.session.available("q", "f", "nvidia.com/gpu") == 100


def test_a_workload_whose_node_came_back_is_left_alone() -> None:
    world = running(site(((2, 2),)), (pods(2, 1, topology=required(RACK)),))
    world.apply(replace(world.workloads["w"], unhealthy_nodes=("n000",)))
    world.apply(replace(world.workloads["w"], unhealthy_nodes=()))
    assert world.cycle() == []
    assert places(world, "w") == {"main": {"n000": 2}}


def test_a_pod_that_stands_alone_cannot_move() -> None:
    world = World(*site(((2, 2),)), queue("q", 100), config=PATIENT)
    alone = replace(workload("w", "q", pod_sets=(pods(1, 1, topology=required(RACK)),)), owner="Pod/team/w")
    world.run(alone, admitted=True)
    before = places(world, "w")
    fail(world, "w", *before["main"])
    world.cycle()
    assert places(world, "w") == before
    assert world.workloads["w"].unhealthy_nodes == ()


def provisioned(*things: Object, on: str = "f") -> World:
    """A queue whose nodes are asked for first."""
    check = AdmissionCheck(name="capacity", controller="kueue.x-k8s.io/provisioning-request")
    checked = replace(queue("q", 100), checks=(CheckRule("capacity", (on,) if on else ()),))
    return World(*things, check, checked)


def with_check(world: World, name: str, state: str) -> Workload:
    changed = replace(world.workloads[name], checks=(CheckState(name="capacity", state=state),))
    return conditions.sync_admitted(changed, world.now, granular=True)


def test_places_are_found_once_the_nodes_are_there() -> None:
    topology, *nodes, flavor = site(((2,),))
    world = provisioned(topology, flavor)
    waiting = replace(
        workload("w", "q", pod_sets=(pods(2, 1, topology=required(RACK)),)), checks=(CheckState(name="capacity"),)
    )
    world.apply(waiting)
    world.cycle()
    reserved = world.workloads["w"]
    assert reserved.reserved
    assert reserved.admission is not None
    assert [a.delayed for a in reserved.admission.pod_sets] == ["Pending"]
    assert not reserved.admitted
    world.apply(*nodes)
    world.apply(with_check(world, "w", "Ready"))
    pending = world.workloads["w"].condition("Admitted")
    assert pending is not None
    assert (pending.reason, pending.message) == (
        "PendingDelayedTopologyRequests",
        "There are pending delayed topology requests",
    )
    before = world.workloads["w"]
    decision = world.cycle()[0]
    admitted = world.workloads["w"]
    assert admitted.admitted
    assert places(world, "w") == {"main": {"n000": 2}}
    assert admitted.admission is not None
    assert [a.delayed for a in admitted.admission.pod_sets] == ["Ready"]
    events = events_for(decision, before, admitted, {}, KueueConfig(), world.now)
    assert [(event.reason, event.message) for event in events] == [
        ("Admitted", "Admitted by ClusterQueue q, wait time since reservation was 0s")
    ]


def test_places_are_found_where_the_checks_send_the_pods() -> None:
    world = provisioned(*site(((2,), (2,))))
    update = PodSetUpdate(name="main", node_selector={RACK: "r01"})
    world.apply(workload("w", "q", pod_sets=(pods(2, 1, topology=required(RACK)),)))
    world.cycle()
    ready = CheckState(name="capacity", state="Ready", updates=(update,))
    world.apply(replace(world.workloads["w"], checks=(ready,)))
    world.cycle()
    assert places(world, "w") == {"main": {"n010": 2}}


def test_a_check_that_contradicts_the_pods_leaves_no_place() -> None:
    world = provisioned(*site(((2,),)))
    bound = replace(pods(2, 1, topology=required(RACK)), name="main")
    bound = replace(bound, template=replace(bound.template, node_selector={"zone": "a"}))
    world.apply(workload("w", "q", pod_sets=(bound,)))
    world.cycle()
    update = PodSetUpdate(name="main", node_selector={"zone": "b"})
    world.apply(replace(world.workloads["w"], checks=(CheckState(name="capacity", state="Ready", updates=(update,)),)))
    waits = world.cycle()[0]
    assert isinstance(waits, KeepWaiting)
    assert waits.message == (
        "couldn't assign flavors to pod set main: invalid podSetUpdate for PodSet main, error: invalid admission check"
        " PodSetUpdate: conflict for nodeSelector: conflict for key=zone, value1=a, value2=b"
    )


def test_a_check_of_another_flavor_delays_nothing() -> None:
    world = provisioned(*site(((2,),)), on="other")
    world.run(workload("w", "q", pod_sets=(pods(2, 1, topology=required(RACK)),)), admitted=True)
    assert places(world, "w") == {"main": {"n000": 2}}


def test_a_recalled_session_goes_on_with_the_second_pass() -> None:
    world = running(site(((2, 2),)), (pods(2, 1, topology=required(RACK)),))
    fail(world, "w", "n000")
    saved = msgspec.msgpack.decode(msgspec.msgpack.encode(world.session.dump()), type=SessionState)
    assert saved.second_passes.keys() == {"team/w"}
    things = tuple(t for t in site(((2, 2),)) if not (isinstance(t, Node) and t.name == "n000"))
    copy = World(*things, queue("q", 100), config=PATIENT)
    copy.now = world.now
    copy.apply(world.workloads["w"])
    copy.session.load(saved)
    assert copy.session.next_requeue == world.session.next_requeue == world.now + SECOND
    assert copy.cycle() == world.cycle()


def test_a_fork_has_a_second_pass_of_its_own() -> None:
    world = running(site(((2, 2),)), (pods(2, 1, topology=required(RACK)),))
    fail(world, "w", "n000")
    fork = world.session.fork()
    assert fork.run_cycle(world.now + SECOND)
    assert world.session.next_requeue == world.now + SECOND


def test_a_second_pass_comes_before_the_heads_of_its_cycle() -> None:
    world = running(site(((2, 2),)), (pods(2, 1, topology=required(RACK)),))
    fail(world, "w", "n000")
    world.apply(workload("urgent", "q", priority=100, pod_sets=(pods(2, 1, topology=required(RACK)),)))
    first = world.cycle()[0]
    assert isinstance(first, Admit)
    assert first.workload == "team/w"
    assert "urgent" not in world.running


def test_a_pause_that_has_begun_is_not_begun_again() -> None:
    """A workload that needs no place for a moment keeps its turn; one that needs none when it comes is left out."""
    world = running(site(((1, 1),)), (pods(1, 1, topology=required(RACK)),))
    healthy = world.workloads["w"]
    state = world.session._apply_noted_changes
    fail(world, "w", "n000")
    ill, turn = world.workloads["w"], dict(state.second_passes)
    world.apply(healthy)
    assert dict(state.second_passes) == turn
    world.apply(ill)
    assert dict(state.second_passes) == turn
    world.apply(healthy)
    assert world.cycle() == []
    assert dict(state.second_passes) == {}
