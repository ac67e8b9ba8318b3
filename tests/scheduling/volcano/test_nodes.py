"""Nodes as Volcano sees them: what is idle, used, being released and spoken for."""

import pytest

from gpuconsole.model.cluster import Node
from gpuconsole.model.resources import CPU, GPU, MEMORY, PODS
from gpuconsole.scheduling.volcano.api.node import NodeInfo
from gpuconsole.scheduling.volcano.api.resource import ZERO, Resource
from gpuconsole.scheduling.volcano.api.task import TaskStatus
from tests.support.volcano_clusters import GIB, node, task

S = TaskStatus
WHOLE = Resource(8000, 32 * GIB, {GPU: 8000, PODS: 20}, 20)
ONE = Resource(1000, 0, {GPU: 1000, PODS: 1})
REST = Resource(7000, 32 * GIB, {GPU: 7000, PODS: 19}, 20)
NOTHING = Resource(0, 0, {GPU: 0, PODS: 0})

SUMS: dict[TaskStatus, tuple[Resource, Resource, Resource, Resource, Resource]] = {
    # idle, used, releasing, pipelined, idle in future
    S.RUNNING: (REST, ONE, Resource(), Resource(), REST),
    S.ALLOCATED: (REST, ONE, Resource(), Resource(), REST),
    S.BINDING: (REST, ONE, Resource(), Resource(), REST),
    S.RELEASING: (REST, ONE, ONE, Resource(), WHOLE),
    S.PIPELINED: (WHOLE, Resource(), Resource(), ONE, REST),
}


@pytest.mark.parametrize("status", SUMS)
def test_a_task_counts_by_its_status(status: TaskStatus) -> None:
    info, one = NodeInfo(node("n")), task("p")
    one.status = status
    assert info.add_task(one) == ""
    assert (info.idle, info.used, info.releasing, info.pipelined, info.future_idle()) == SUMS[status]
    info.remove_task(one)
    empty = tuple(amount.less_equal(Resource(), ZERO) for amount in (info.used, info.releasing, info.pipelined))
    assert (info.idle, empty, info.tasks) == (WHOLE, (True, True, True), {})


def test_a_node_keeps_the_status_that_it_was_told() -> None:
    info, one = NodeInfo(node("n")), task("p")
    one.status = S.RUNNING
    info.add_task(one)
    one.status = S.RELEASING
    assert info.releasing == Resource()
    info.update_task(one)
    assert (info.releasing, info.used) == (ONE, ONE)


def test_a_task_is_only_once_on_one_node() -> None:
    info, one = NodeInfo(node("n")), task("p", on="other")
    assert info.add_task(one) == "task <default/p> already on different node <other>"
    one.node_name = ""
    assert (info.add_task(one), one.node_name) == ("", "n")
    assert info.add_task(one) == "task <default/p> already on node <n>"


def test_only_a_task_that_is_about_to_be_bound_has_to_find_room() -> None:
    info, large = NodeInfo(node("n")), task("p", requests={CPU: 9000})
    large.status = S.BINDING
    assert info.add_task(large) == (
        "node n resources [cpu] are not enough to put task <default/p>, "
        f"idle: {WHOLE}, req: cpu 9000.00, memory 0.00, pods 1.00"
    )
    assert (info.idle, info.tasks) == (WHOLE, {})
    large.status = S.RUNNING
    assert (info.add_task(large), info.idle.cpu) == ("", -1000)


def test_a_node_that_changes_is_summed_up_anew() -> None:
    info, one = NodeInfo(node("n")), task("p")
    one.status = S.RUNNING
    info.add_task(one)
    info.set_node(node("n", amounts={GPU: 4}))
    assert info.idle == Resource(7000, 32 * GIB, {GPU: 3000, PODS: 19}, 20)
    info.set_node(None)
    assert (info.node is not None, info.idle.get(GPU)) == (False, 3000)


def test_a_node_that_nobody_described_only_remembers_tasks() -> None:
    info, one = NodeInfo(), task("p", on="n")
    assert (info.add_task(one), info.used, len(info.tasks)) == ("", Resource(), 1)
    info.set_node(node("n"))
    assert (info.node is not None, info.used) == (True, ONE)


def test_lent_cores_and_memory_come_on_top() -> None:
    said = {"volcano.sh/oversubscription-cpu": "2000", "volcano.sh/oversubscription-memory": "many"}
    lending = NodeInfo(
        Node(
            name="n",
            labels={"volcano.sh/oversubscription": "true", "volcano.sh/revocable-zone": "rz1"},
            annotations={**said, "volcano.sh/offline-job-evicting": "1"},
            allocatable={CPU: 1000, MEMORY: 5},
        )
    )
    assert (lending.idle, lending.allocatable) == (Resource(3000, 5), Resource(3000, 5))
    assert (lending.oversubscribed, lending.offline_evicting, lending.revocable_zone) == (True, True, "rz1")


def test_a_clone_has_sums_of_its_own() -> None:
    info, one = NodeInfo(node("n")), task("p")
    info.add_task(one)
    twin = info.copy()
    twin.remove_task(one)
    assert (info.used, twin.idle, [*info.tasks]) == (ONE, WHOLE, ["default/p"])


def test_a_fresh_node_is_as_it_was_described() -> None:
    labels = {"volcano.sh/oversubscription": "true", "volcano.sh/revocable-zone": "rz1"}
    described = Node(
        name="n", labels=labels, annotations={"volcano.sh/offline-job-evicting": "1"}, allocatable={CPU: 8}
    )
    info, one = NodeInfo(described), task("p")
    info.without_tasks().add_task(one)
    fresh, made = info.without_tasks(), NodeInfo(described)
    assert [getattr(fresh, name) for name in NodeInfo.__slots__] == [getattr(made, name) for name in NodeInfo.__slots__]
