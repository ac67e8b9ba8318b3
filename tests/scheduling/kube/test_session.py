"""The session: order of the queue, what wakes a pod, GPU indices, forks, and a session rebuilt from the same facts."""

import pytest
from msgspec.structs import replace

from gpuconsole.model.cluster import Pod, PodPhase
from gpuconsole.model.events import Bind, Unschedulable
from gpuconsole.model.objects import Object
from gpuconsole.scheduling.kube.session import KubePlacement
from tests.support.kube_cluster import Cluster, node, pod, pods, template


def test_priority_goes_first_then_creation_then_the_name() -> None:
    waiting = [
        pod("late", created=9),
        pod("b", created=5),
        pod("a", created=5),
        pod("important", created=10, priority=1),
        pod("large", 2, created=7),
    ]
    bound = [decision.pod for decision in Cluster(node("n", 8)).add(waiting).run() if isinstance(decision, Bind)]
    assert bound == ["default/important", "default/a", "default/b", "default/large", "default/late"]


def test_a_pod_that_does_not_fit_does_not_block_the_next() -> None:
    cluster = Cluster(node("n", 4)).add([pod("large", 8, priority=9), pod("small")])
    cluster.run()
    assert cluster.where() == {"n": ["small"]}


def test_gpus_get_the_lowest_free_indices() -> None:
    cluster = Cluster(node("n", 4)).add([pod("a"), pod("b", 2), pod("c")])
    assert cluster.run() == [
        Bind("default/a", "n", (0,)),
        Bind("default/b", "n", (1, 2)),
        Bind("default/c", "n", (3,)),
    ]
    cluster.remove("a").remove("c").add(pod("d", 2))
    assert cluster.run() == [Bind("default/d", "n", (0, 3))]


def test_a_pod_keeps_the_indices_that_it_names() -> None:
    cluster = Cluster(node("n", 4)).add(pod("a", 2, node="n", owns=(1, 3)))
    assert cluster.placement.free_gpus() == {"n": (0, 2)}


def test_a_bound_pod_without_indices_gets_some() -> None:
    cluster = Cluster(node("n", 4)).add([pod("a", 1, node="n", owns=(0,)), pod("b", 2, node="n")])
    assert cluster.placement.free_gpus() == {"n": (3,)}


@pytest.mark.parametrize("claimed", [(0,), (7,)], ids=["taken", "no such GPU"])
def test_an_index_that_cannot_be_had_is_replaced(claimed: tuple[int, ...]) -> None:
    cluster = Cluster(node("n", 2)).add([pod("a", node="n", owns=(0,)), pod("b", node="n", owns=claimed)])
    assert cluster.placement.free_gpus() == {"n": ()}


def test_pods_on_a_node_that_appears_later_are_counted() -> None:
    cluster = Cluster().add(pod("early", 3, node="n")).add(pod("p", 2))
    cluster.run()
    assert cluster.told("p") == "no nodes available to schedule pods"
    cluster.placement.apply(node("n", 4), 0)
    assert cluster.placement.free_gpus() == {"n": (3,)}
    cluster.run()
    assert cluster.told("p").startswith("0/1 nodes are available: 1 Insufficient nvidia.com/gpu.")


def test_a_node_that_goes_is_no_choice_any_more() -> None:
    cluster = Cluster(node("n"), node("m", 0)).add(pod("p"))
    cluster.placement.delete("nodes", "n", 0)
    cluster.run()
    assert cluster.told("p").startswith("0/1 nodes are available: 1 Insufficient nvidia.com/gpu.")


def refused() -> Cluster:
    """A full node, a cordoned one, and a pod that was told to wait."""
    cluster = Cluster(node("n", 1), node("shut", 1, unschedulable=True)).add([pod("runs", node="n"), pod("waits")])
    cluster.run()
    assert not cluster.placement.has_pending
    return cluster


def test_a_refused_pod_is_not_tried_again_for_nothing() -> None:
    cluster = refused()
    cluster.placement.apply(cluster.pods["waits"], 5)
    cluster.placement.apply(cluster.pods["runs"], 5)
    assert not cluster.placement.has_pending
    assert cluster.run() == []


def test_a_finished_pod_wakes_the_waiting() -> None:
    cluster = refused()
    cluster.add(replace(cluster.pods["runs"], phase=PodPhase.SUCCEEDED))
    assert cluster.placement.has_pending
    assert cluster.run() == [Bind("default/waits", "n", (0,))]


def test_a_deleted_pod_wakes_the_waiting() -> None:
    cluster = refused().remove("runs")
    assert cluster.run() == [Bind("default/waits", "n", (0,))]


def test_an_uncordoned_node_wakes_the_waiting() -> None:
    cluster = refused()
    cluster.placement.apply(node("shut", 1), 5)
    assert cluster.run() == [Bind("default/waits", "shut", (0,))]


def test_a_new_node_wakes_the_waiting() -> None:
    cluster = refused()
    cluster.placement.apply(node("new", 1), 5)
    assert cluster.run() == [Bind("default/waits", "new", (0,))]


def test_equal_pods_are_told_the_same_once() -> None:
    cluster = Cluster(node("n", 1)).add(pods("p", 3))
    text = (
        "0/1 nodes are available: 1 Insufficient nvidia.com/gpu. "
        "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
    )
    assert cluster.run()[1:] == [Unschedulable("default/p-1", text), Unschedulable("default/p-2", text)]
    cluster.add(pod("p-3", created=9))
    assert cluster.run() == [Unschedulable("default/p-3", text)]


def test_a_gated_pod_is_not_tried() -> None:
    cluster = Cluster(node("n")).add(pod("p", gates=("kueue.x-k8s.io/admission",)))
    assert cluster.run() == []
    cluster.add(pod("p"))
    cluster.run()
    assert cluster.where() == {"n": ["p"]}


def test_a_pod_whose_priority_rises_is_tried_again() -> None:
    cluster = Cluster(node("n", 1)).add([pod("runs", node="n", priority=1, bound=1), pod("waits", priority=1)])
    cluster.run()
    cluster.add(replace(cluster.pods["waits"], priority=2)).settle()
    assert cluster.where() == {"n": ["waits"]}


def test_a_deleted_pod_leaves_the_queue() -> None:
    cluster = Cluster(node("n", 1)).add([pod("p"), pod("q", created=1)])
    cluster.remove("p").run()
    assert cluster.where() == {"n": ["q"]}


def test_a_leaving_pod_holds_its_place_until_it_is_gone() -> None:
    cluster = refused()
    cluster.add(replace(cluster.pods["runs"], deleted=7, priority=-1)).run()
    assert cluster.where() == {"n": ["runs"]}
    cluster.bury().run()
    assert cluster.where() == {"n": ["waits"]}


def test_a_fork_goes_its_own_way() -> None:
    cluster = Cluster(node("n", 2)).add([pod("a", node="n", owns=(0,)), pod("large", 2)])
    cluster.run()
    twin = cluster.placement.fork()
    twin.delete("pods", "default/a", 1)
    assert twin.schedule(1) == [Bind("default/large", "n", (0, 1))]
    assert cluster.placement.free_gpus() == {"n": (1,)}
    assert cluster.placement.schedule(1) == []
    cluster.placement.delete("pods", "default/a", 1)
    assert cluster.placement.schedule(1) == [Bind("default/large", "n", (0, 1))]


def test_a_fork_of_waiting_gangs_goes_its_own_way() -> None:
    cluster = Cluster(node("n", 1)).add(pods("p", 2, gang="g", gang_size=2))
    cluster.run()
    twin = cluster.placement.fork()
    twin.apply(node("m", 1), 1)
    assert [type(decision) for decision in twin.schedule(1)] == [Bind, Bind]
    assert cluster.placement.free_gpus() == {"n": (0,)}
    cluster.placement.apply(node("m", 1), 1)
    assert len(cluster.placement.schedule(1)) == 2


def test_a_session_built_from_the_same_facts_goes_on_alike() -> None:
    cluster = Cluster(node("a", 2), node("b", 2))
    cluster.add(pods("low", 4, priority=1)).run()
    cluster.add([pod("high", 2, priority=9), pod("same", 2, priority=9, created=1), pod("never", 4, priority=0)])
    cluster.run()
    rebuilt = KubePlacement()
    things: list[Object] = [node("b", 2), node("a", 2), *cluster.pods.values()]
    for each in things:
        rebuilt.apply(each, 0)
    rebuilt.load(cluster.placement.dump())
    assert rebuilt.schedule(1) == []
    for session in (cluster.placement, rebuilt):
        for gone in [each.key for each in cluster.pods.values() if each.deleted]:
            session.delete("pods", gone, 2)
    assert rebuilt.schedule(2) == cluster.placement.schedule(2) != []


def test_a_pod_that_moves_takes_its_gpus_along() -> None:
    moved: Pod = pod("p", 2, node="n", owns=(0, 1))
    cluster = Cluster(node("n", 2), node("m", 2)).add(moved)
    cluster.add(replace(moved, node="m"))
    assert cluster.placement.free_gpus() == {"n": (0, 1), "m": ()}
    assert cluster.placement.largest_gang(template(2)) == 1
