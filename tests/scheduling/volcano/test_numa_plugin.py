"""Guaranteed pods get whole CPUs that are near each other, as the kubelet's policy wants it."""

import pytest

from gpuconsole.model.manifests import decode_object
from gpuconsole.model.pod_template import Container, PodTemplate
from gpuconsole.model.resources import CPU, MEMORY
from gpuconsole.model.volcano import CpuPlace, Numatopology
from gpuconsole.scheduling.volcano.api.task import TaskInfo
from gpuconsole.scheduling.volcano.plugins.numaaware import (
    TopologyHint,
    assign_cpus,
    cpu_hints,
    merge_hints,
    take_by_topology,
)
from gpuconsole.scheduling.volcano.session import VolcanoSession
from tests.support.volcano_clusters import GIB, job, node, session, task

# Two sockets that are a NUMA node each, with two cores of two threads.
PLACES = {cpu: CpuPlace(cpu // 4, cpu // 4, cpu // 2) for cpu in range(8)}
EVERY = frozenset(range(8))


def machine(
    policy: str = "single-numa-node",
    *,
    cpu_policy: str = "static",
    free: tuple[int, ...] = tuple(range(8)),
    reserved: int = 0,
) -> Numatopology:
    return Numatopology(
        name="n", cpu_policy=cpu_policy, topology_policy=policy, cpus=PLACES, free=free, reserved_cpu=reserved
    )


def wants(milli: int) -> Container:
    return Container(requests={CPU: milli, MEMORY: GIB}, limits={CPU: milli, MEMORY: GIB})


def test_a_numatopology_is_read() -> None:
    document = {
        "apiVersion": "nodeinfo.volcano.sh/v1alpha1",
        "kind": "Numatopology",
        "metadata": {"name": "n"},
        "spec": {
            "policies": {"CPUManagerPolicy": "static", "TopologyManagerPolicy": "restricted"},
            "resReserved": {"cpu": "500m"},
            "numares": {"cpu": {"allocatable": "0-2,5,x,9-", "capacity": 8}},
            "cpuDetail": {"0": {}, "5": {"numa": 1, "socket": 1, "core": 2}},
        },
    }
    assert decode_object(document) == Numatopology(
        name="n",
        cpu_policy="static",
        topology_policy="restricted",
        reserved_cpu=500,
        cpus={0: CpuPlace(), 5: CpuPlace(1, 1, 2)},
        free=(0, 1, 2, 5, 9),
    )


TAKEN: dict[str, tuple[set[int], int, set[int] | None]] = {
    "a whole socket": (set(EVERY), 4, {0, 1, 2, 3}),
    "a core, of the lower number": (set(EVERY), 2, {0, 1}),
    "a thread": (set(EVERY), 1, {0}),
    "the thread whose core is in use": ({0, 1, 2, 4, 5, 6, 7}, 1, {2}),
    "a core and the thread beside it": (set(EVERY), 3, {0, 1, 2}),
    "none": (set(EVERY), 0, set()),
    "too many": ({0, 1}, 3, None),
}


@pytest.mark.parametrize("name", TAKEN)
def test_cpus_are_taken_together(name: str) -> None:
    free, count, wanted = TAKEN[name]
    assert take_by_topology(machine(), free, count) == (None if wanted is None else frozenset(wanted))


def test_hints_name_sets_of_numa_nodes_with_enough_free_cpus() -> None:
    assert cpu_hints(wants(4000), machine(), EVERY) == [TopologyHint(1, True), TopologyHint(2, True), TopologyHint(3)]
    assert cpu_hints(wants(4000), machine(), EVERY - {5}) == [TopologyHint(1, True), TopologyHint(3)]
    assert cpu_hints(wants(5000), machine(), EVERY) == [TopologyHint(3, True)]
    assert cpu_hints(wants(4000), machine(reserved=100), EVERY) == [TopologyHint(2, True), TopologyHint(3)]
    assert cpu_hints(wants(1500), machine(), EVERY) is None


def test_cpus_of_the_hint_come_first() -> None:
    assert assign_cpus(wants(2000), machine(), EVERY, TopologyHint(2, True)) == {4, 5}
    assert assign_cpus(wants(5000), machine(), EVERY, TopologyHint(2, True)) == {0, 4, 5, 6, 7}
    assert assign_cpus(wants(9000), machine(), EVERY, TopologyHint(3, True)) == frozenset()


DECIDED: dict[str, tuple[str, list[TopologyHint] | None, tuple[TopologyHint, bool]]] = {
    "the narrowest that is preferred": (
        "restricted",
        [TopologyHint(3), TopologyHint(2, True)],
        (TopologyHint(2, True), True),
    ),
    "nothing preferred": ("restricted", [TopologyHint(3)], (TopologyHint(3), False)),
    "nothing preferred, but that is no matter": ("best-effort", [TopologyHint(2)], (TopologyHint(2), True)),
    "two nodes, where one has to do": ("single-numa-node", [TopologyHint(3, True)], (TopologyHint(3), False)),
    "no wish": ("single-numa-node", None, (TopologyHint(3, True), True)),
    "nothing would do": ("restricted", [], (TopologyHint(3), False)),
    "no policy": ("none", [], (TopologyHint(), True)),
}


@pytest.mark.parametrize("name", DECIDED)
def test_a_policy_decides_by_hints(name: str) -> None:
    policy, listed, wanted = DECIDED[name]
    assert merge_hints(policy, (0, 1), [{CPU: listed}]) == wanted


def opened(*tasks: TaskInfo, **machines: Numatopology) -> VolcanoSession:
    on = session("numa-aware", [node(name) for name in ("a", "b")], [job(tasks)])
    on.numa.update(machines)
    plugin = on.plugins[0]
    plugin.on_session_open(on)
    return on


def guaranteed(name: str, milli: int, policy: str = "") -> TaskInfo:
    annotations = {"volcano.sh/numa-topology-policy": policy} if policy else {}
    return task(name, annotations=annotations, template=PodTemplate(containers=(wants(milli),)))


def refusals(on: VolcanoSession, one: TaskInfo) -> dict[str, list[str]]:
    errors = {name: on.predicate(one, info) for name, info in on.nodes.items()}
    return {name: error.reasons for name, error in errors.items() if error is not None}


def test_a_task_goes_where_its_cpus_are_near_each_other() -> None:
    one = guaranteed("p", 4000, "restricted")
    on = opened(one, a=machine("restricted"), b=machine("restricted", free=(0, 1, 2, 4, 5, 6)))
    assert refusals(on, one) == {"b": ["container main cannot be assigned by numa"]}
    loose = opened(one, a=machine("best-effort"), b=machine("best-effort", free=(0, 1, 2, 4, 5, 6)))
    same = guaranteed("q", 4000, "best-effort")
    assert refusals(loose, same) == {}
    assert loose.functions.batch_node_order["numa-aware"](same, loose.node_list) == {"a": 50, "b": 0}


def test_cpus_of_one_task_are_not_given_to_another() -> None:
    first, second = guaranteed("p", 4000), guaranteed("q", 6000)
    on = opened(first, second, a=machine("restricted"), b=machine("none"))
    assert (refusals(on, first), refusals(on, second)) == ({}, {})
    first.node_name = "a"
    handler = on.functions.handlers[-1]
    assert handler.allocate is not None
    assert handler.deallocate is not None
    handler.allocate(first)
    assert refusals(on, second) == {"a": ["container main cannot be assigned by numa"]}
    handler.deallocate(first)
    assert refusals(on, second) == {}


NAMED: dict[str, tuple[Numatopology | None, list[str]]] = {
    "it is the node's": (machine("restricted"), []),
    "it is not the node's": (
        machine("best-effort"),
        ["task topology policy[restricted] is different with node[best-effort]"],
    ),
    "the node gives no CPUs away": (machine("restricted", cpu_policy="none"), ["cpu manager policy isn't static"]),
    "nothing is free": (machine("restricted", free=()), ["cpu allocatable map is empty"]),
    "nothing is known of the node": (None, ["numa info is empty"]),
}


@pytest.mark.parametrize("name", NAMED)
def test_a_policy_that_a_pod_names_has_to_be_the_nodes(name: str) -> None:
    known, reasons = NAMED[name]
    one = guaranteed("p", 2000, "restricted")
    on = opened(one, **({"a": known} if known is not None else {}), b=machine("restricted"))
    assert refusals(on, one).get("a", []) == reasons
    burstable = task("q", annotations={"volcano.sh/numa-topology-policy": "restricted"})
    assert refusals(on, burstable) == {}
