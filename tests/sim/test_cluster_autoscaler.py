"""The Cluster Autoscaler: groups grow for pods that fit nowhere, and shrink by nodes that were unneeded long enough."""

from random import Random

import pytest
from msgspec.structs import replace

from gpuconsole.model.autoscaling import ProvisioningRequestConfig
from gpuconsole.model.clock import HOUR, MINUTE, SECOND, Span
from gpuconsole.model.cluster import Node, Pod, PodDisruptionBudget
from gpuconsole.model.commands import FailNode, Finish, RestoreNode
from gpuconsole.model.job import Job
from gpuconsole.model.labels import LabelSelector
from gpuconsole.model.objects import Object
from gpuconsole.model.pod_template import Container, PodTemplate
from gpuconsole.model.queues import AdmissionCheck, CheckRule, ClusterQueue, ResourceFlavor
from gpuconsole.scheduling.kube.profile import PlacementPolicy
from gpuconsole.scheduling.kueue.admission_checks import PROVISIONING_CONTROLLER
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.sim.autoscaling.cluster_autoscaler import (
    ExpansionOption,
    choose_option,
    estimate_scale_up,
    eviction_blocker,
    find_unneeded,
    utilization,
)
from gpuconsole.sim.autoscaling.disruption import EvictionAllowances
from gpuconsole.sim.autoscaling.provisioning import NodeFit
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import AutoscalerPolicy, Expander, ScalingGroup
from tests.support.autoscaled_clusters import GIB, after, begin, groups, job, machines, policy, pool, said, where
from tests.support.sim_cluster import GPU, queue, start, submit
from tests.support.sim_cluster import job as team_job


def lone(name: str, gpus: int = 1, *, cpu: int = 1000) -> Pod:
    """A pod that nobody makes again."""
    requests = {GPU: gpus, "cpu": cpu, "memory": GIB} if gpus else {"cpu": cpu, "memory": GIB}
    return Pod(name=name, template=PodTemplate(containers=(Container(requests=requests),)))


def stored(name: str, **notes: str) -> Job:
    """A job whose pods keep something on the node's own disk."""
    made = job(name, pod_notes={key.replace("_", "-"): value for key, value in notes.items()})
    (pods,) = made.pod_sets
    return replace(made, pod_sets=(replace(pods, template=replace(pods.template, local_volumes=("scratch",))),))


ONE = ScalingGroup(name="one", type="s.1")
FOUR = ScalingGroup(name="four", type="s.4")
TICK = 10 * SECOND
START_UP = 4 * MINUTE


def test_a_node_takes_its_pod_after_the_scan_and_four_minutes() -> None:
    simulation = begin([], groups(ONE))
    submit(simulation, job("a"))
    assert machines(after(simulation, TICK - SECOND)) == {}
    assert machines(after(simulation, SECOND)) == {"one-1": "s.1 a on-demand starting"}
    assert said(simulation) == ["0:10 ml/a-0 TriggeredScaleUp: pod triggered scale-up: [{one 0->1 (max: 10)}]"]
    assert where(after(simulation, START_UP - SECOND)) == {"a-0": ""}
    assert where(after(simulation, SECOND)) == {"a-0": "one-1"}


def test_machines_on_their_way_count() -> None:
    simulation = begin([], groups(FOUR))
    submit(simulation, job("a"))
    after(simulation, MINUTE)
    submit(simulation, job("b", 3))
    after(simulation, HOUR)
    assert where(simulation) == {"a-0": "four-1", "b-0": "four-1"}


def test_one_group_grows_at_a_scan_and_the_rest_at_the_next() -> None:
    simulation = begin([], groups(ONE, replace(FOUR, labels={"big": "yes"}), expander=Expander.PRICE))
    submit(simulation, job("a"), job("b", selector={"big": "yes"}))
    assert list(machines(after(simulation, TICK))) == ["one-1"]
    assert sorted(machines(after(simulation, TICK))) == ["four-1", "one-1"]


def test_no_group_grows_beyond_its_most() -> None:
    simulation = begin([], groups(replace(ONE, max_size=2)))
    submit(simulation, job("a"), job("b"), job("c"))
    after(simulation, HOUR)
    assert sorted(where(simulation).values()) == ["", "one-1", "one-2"]
    assert said(simulation)[-1].endswith(
        "c-0 NotTriggerScaleUp: pod didn't trigger scale-up: 1 max node group size reached"
    )


def test_a_pod_that_no_group_holds_is_told_so() -> None:
    simulation = begin([], groups(ONE))
    submit(simulation, job("a", 4))
    assert said(after(simulation, HOUR)) == [
        "0:10 ml/a-0 NotTriggerScaleUp: pod didn't trigger scale-up: 1 node(s) didn't fit the pod"
    ]


def test_pods_below_the_cutoff_make_no_nodes() -> None:
    simulation = begin([], groups(ONE))
    submit(simulation, job("a", priority=-11), job("b", priority=-10))
    assert where(after(simulation, HOUR)) == {"a-0": "", "b-0": "one-1"}


def test_a_group_that_does_not_deliver_is_left_alone_for_twice_as_long_each_time() -> None:
    simulation = begin([], groups(ONE, unavailable=("s.1/*/*",)))
    submit(simulation, job("a"))
    asked = [line.partition(" ")[0] for line in said(after(simulation, 2 * HOUR)) if "ScaleUpTimedOut" in line]
    # 15 minutes of waiting, then 5, 10 and 20 of back-off between.
    assert asked == ["15:10", "35:10", "60:10", "95:10"]
    assert simulation.snapshot().node_groups["one"].spent == 0


def test_groups_begin_with_their_size() -> None:
    simulation = begin([], groups(replace(ONE, initial_size=2)))
    submit(simulation, job("a"))
    assert sorted(machines(simulation).values()) == ["s.1 a on-demand ready"] * 2
    assert where(simulation) == {"a-0": "one-1"}


# Shrinking


def idle_after(simulation: Simulation, span: Span) -> dict[str, str]:
    return machines(after(simulation, span))


def test_an_idle_node_stays_for_9m59s_and_goes_at_10m() -> None:
    simulation = begin([], groups(replace(ONE, initial_size=1)))
    assert list(idle_after(simulation, TICK + 10 * MINUTE - SECOND)) == ["one-1"]
    assert list(idle_after(simulation, SECOND)) == []


def test_a_group_is_never_smaller_than_its_least() -> None:
    simulation = begin([], groups(replace(ONE, initial_size=3, min_size=2)))
    assert len(idle_after(simulation, HOUR)) == 2


def test_nothing_goes_within_ten_minutes_of_growing() -> None:
    simulation = begin([], groups(replace(ONE, initial_size=1, labels={"old": "yes"}), replace(FOUR, name="new")))
    after(simulation, 5 * MINUTE)
    submit(simulation, job("a", 2))
    grown = 5 * MINUTE + TICK
    assert "one-1" in idle_after(simulation, grown + 10 * MINUTE - SECOND - 5 * MINUTE)
    assert "one-1" not in idle_after(simulation, SECOND)


@pytest.mark.parametrize(
    ("gpus", "left"),
    [(1, ["four-2"]), (2, ["four-1", "four-2"])],
    ids=["used by a quarter it goes, and its pod elsewhere", "used by half it stays"],
)
def test_a_node_that_is_used_by_half_stays(gpus: int, left: list[str]) -> None:
    simulation = begin([], groups(replace(FOUR, initial_size=2)))
    submit(simulation, job("a", 4 - gpus), job("b", gpus), job("c", 2))
    assert where(simulation) == {"a-0": "four-1", "b-0": "four-1", "c-0": "four-2"}
    simulation.submit(Finish("ml/a"))
    assert sorted(idle_after(simulation, HOUR)) == left


def test_pods_of_a_node_that_goes_run_elsewhere() -> None:
    simulation = begin([], groups(replace(FOUR, initial_size=2)))
    submit(simulation, job("a", 3), job("b", 3), job("c"))
    assert sorted(where(simulation).values()) == ["four-1", "four-1", "four-2"]
    simulation.submit(Finish("ml/a"))
    after(simulation, HOUR)
    assert len(set(where(simulation).values())) == 1
    assert len(machines(simulation)) == 1


BUDGET = PodDisruptionBudget(namespace="ml", name="b", selector=LabelSelector({"app": "a"}), min_available="1")
KEEPS: dict[str, tuple[Job | Pod, tuple[Object, ...], str]] = {
    "a budget": (
        job("a", labels={"app": "a"}),
        (BUDGET,),
        "not enough pod disruption budget to move ml/a-0: ml/b (NotEnoughPdb)",
    ),
    "an annotation": (
        job("a", pod_notes={"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}),
        (),
        "pod ml/a-0 has annotation cluster-autoscaler.kubernetes.io/safe-to-evict: false (NotSafeToEvictAnnotation)",
    ),
    "a volume on the node's disk": (
        stored("a"),
        (),
        "pod ml/a-0 has local storage: scratch (LocalStorageRequested)",
    ),
    "a pod without an owner": (lone("a"), (), "pod default/a is not replicated (NotReplicated)"),
    "a pod that fits nowhere else": (
        job("a", selector={"kubernetes.io/hostname": "four-1"}),
        (),
        "its pods do not fit elsewhere (NoPlaceToMovePods)",
    ),
}


@pytest.mark.parametrize("name", KEEPS)
def test_what_keeps_a_node(name: str) -> None:
    thing, others, why = KEEPS[name]
    simulation = begin(others, groups(replace(FOUR, initial_size=2, min_size=0)))
    submit(simulation, thing)
    lines = said(after(simulation, HOUR))
    assert list(machines(simulation)) == ["four-1"]
    assert f"0:10 four-1 NoScaleDown: node four-1 cannot be removed: {why}" in lines


def test_an_annotation_lets_a_lone_pod_go() -> None:
    node = Node(name="n", allocatable={"cpu": 8000})
    safe = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}
    assert eviction_blocker(node, [replace(lone("a"), annotations=safe)], EvictionAllowances((), ())) == ""


@pytest.mark.parametrize(("volumes", "goes"), [("scratch,cache", True), ("cache", False)])
def test_an_annotation_lets_local_volumes_go(volumes: str, goes: bool) -> None:
    node = Node(name="n", allocatable={"cpu": 8000})
    pod = replace(lone("a"), job="Job/ml/a", template=replace(lone("a").template, local_volumes=("scratch",)))
    notes = {"cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes": volumes}
    assert (eviction_blocker(node, [replace(pod, annotations=notes)], EvictionAllowances((), ())) == "") is goes


def test_an_unhealthy_cluster_neither_grows_nor_shrinks() -> None:
    """Five of ten nodes do not answer; with a sixth one back it is healthy again, and the waiting pod gets its node."""
    simulation = begin([], groups(replace(ONE, initial_size=10, max_size=20)))
    for number in range(1, 6):
        simulation.submit(FailNode(f"one-{number}"))
    submit(simulation, job("a", 4), job("b", 1))
    lines = said(after(simulation, 25 * MINUTE))
    assert [line.partition(" ")[2] for line in lines if "Unhealthy" in line] == [
        " ClusterUnhealthy: Cluster is unhealthy"
    ]
    assert len(machines(simulation)) == 10
    simulation.submit(RestoreNode("one-5"))
    after(simulation, HOUR)
    assert len(machines(simulation)) < 10


def test_use_is_that_of_gpus_where_there_are_some() -> None:
    node = Node(name="n", allocatable={"cpu": 8000, "memory": 8 * GIB, GPU: 4})
    assert utilization(node, [lone("a", 1)]) == 0.25
    assert utilization(replace(node, allocatable={"cpu": 8000, "memory": 8 * GIB}), [lone("a", 0, cpu=4000)]) == 0.5


# Expanders

CHOICES: dict[Expander, str] = {
    Expander.LEAST_WASTE: "tight",
    Expander.MOST_PODS: "helpful",
    Expander.LEAST_NODES: "few",
    Expander.PRICE: "cheap",
    Expander.PRIORITY: "loved",
}


@pytest.mark.parametrize("expander", CHOICES)
def test_an_expander_takes_the_option_it_is_for(expander: Expander) -> None:
    options = [
        option("cheap", cost=1.0),
        option("few", nodes=1),
        option("helpful", pods=9, cost=99.0),
        option("loved", priority=7),
        option("tight", waste=0.1),
    ]
    best = choose_option(options, expander, Random(1))
    assert best is not None
    assert best.group.name == CHOICES[expander]
    same = choose_option([option("b"), option("a")], expander, Random(1))
    assert same is not None
    assert same.group.name == "a"


def test_the_random_expander_takes_any_by_its_seed() -> None:
    options = [option(name) for name in "abcdef"]
    taken = [choose_option(options, Expander.RANDOM, Random(seed)) for seed in range(30)]
    assert {one.group.name for one in taken if one is not None} == set("abcdef")
    assert choose_option(options, Expander.RANDOM, Random(5)) == choose_option(
        options[::-1], Expander.RANDOM, Random(5)
    )


def option(
    name: str, *, nodes: int = 3, pods: int = 4, cost: float = 8.0, waste: float = 1.0, priority: int = 0
) -> ExpansionOption:
    group = ScalingGroup(name=name, type="s.1", priority=priority)
    return ExpansionOption(group, nodes, tuple(f"p{number}" for number in range(pods)), cost, waste)


def test_an_estimate_packs_the_largest_pods_first() -> None:
    template = Node(name="", allocatable={"cpu": 8000, "memory": 8 * GIB, "pods": 110})
    pods = [lone(name, 0, cpu=cpu) for name, cpu in (("a", 2000), ("b", 6000), ("c", 3000), ("d", 5000))]
    found = estimate_scale_up(ONE, template, 1.0, pods, 9)
    assert found is not None
    assert (found.nodes, found.pods, found.cost) == (2, ("default/b", "default/d", "default/c", "default/a"), 2.0)
    assert found.waste == pytest.approx(0.0 + (16 - 4) / 16)
    bounded = estimate_scale_up(ONE, template, 1.0, pods, 1)
    assert bounded is not None
    assert (bounded.nodes, bounded.pods) == (1, ("default/b", "default/a"))
    assert estimate_scale_up(ONE, template, 1.0, [lone("w", 0, cpu=9000)], 9) is None


# Requests for capacity


ATOMIC = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
CHECK = "check-capacity.autoscaling.x-k8s.io"


def asking(kind: str, **parameters: str) -> list[Object]:
    """A queue whose workloads ask for capacity before they run."""
    config = ProvisioningRequestConfig(name="c", provisioning_class=kind, parameters=parameters)
    reference = "kueue.x-k8s.io/ProvisioningRequestConfig/c"
    check = AdmissionCheck(name="capacity", controller=PROVISIONING_CONTROLLER, parameters=reference)
    team, door = queue("red", 99)
    assert isinstance(team, ClusterQueue)
    return [ResourceFlavor(name="a100"), config, check, replace(team, checks=(CheckRule("capacity"),)), door]


def test_an_atomic_request_gets_nodes_for_all_pods_before_the_workload_runs() -> None:
    simulation = start(asking(ATOMIC), replace(groups(ONE), kueue=KueueConfig()))
    submit(simulation, team_job("a", pods=3))
    assert (len(machines(after(simulation, TICK - SECOND))), where(simulation)) == (0, {})
    after(simulation, SECOND)
    assert list(machines(simulation).values()) == ["s.1 a on-demand starting"] * 3
    assert sorted(where(simulation).values()) == ["", "", ""]
    after(simulation, START_UP)
    assert sorted(where(simulation).values()) == ["one-1", "one-2", "one-3"]


def test_an_atomic_request_that_is_too_large_gets_nothing() -> None:
    simulation = start(asking(ATOMIC), replace(groups(replace(ONE, max_size=2)), kueue=KueueConfig()))
    submit(simulation, team_job("a", pods=3))
    assert (machines(after(simulation, HOUR)), where(simulation)) == ({}, {})


def test_a_request_to_check_capacity_makes_no_nodes() -> None:
    simulation = start(asking(CHECK), replace(groups(replace(ONE, initial_size=2)), kueue=KueueConfig()))
    submit(simulation, team_job("fits", pods=2), team_job("waits"))
    after(simulation, TICK)
    assert sorted(where(simulation).values()) == ["one-1", "one-2"]
    after(simulation, HOUR)
    assert sorted(machines(simulation)) == ["one-1", "one-2"]
    (request,) = [r for r in simulation.snapshot().provisioning_requests.all() if not r.conditions]
    assert request.owners[0].startswith("job-waits")


def test_a_request_that_is_not_to_be_tried_again_fails() -> None:
    simulation = start(asking(CHECK, noRetry="true"), replace(groups(ONE), kueue=KueueConfig()))
    submit(simulation, team_job("a"))
    after(simulation, TICK)
    (request,) = simulation.snapshot().provisioning_requests.all()
    assert [(one.type, one.reason) for one in request.conditions] == [("Failed", "CapacityIsNotFound")]


def test_karpenter_answers_no_request() -> None:
    simulation = start([*asking(ATOMIC), pool()], replace(policy(), kueue=KueueConfig()))
    submit(simulation, team_job("a"))
    after(simulation, HOUR)
    (request,) = simulation.snapshot().provisioning_requests.all()
    assert (request.conditions, machines(simulation)) == ((), {})


def test_a_node_that_does_not_answer_goes_after_twenty_minutes() -> None:
    simulation = begin([], groups(replace(ONE, initial_size=1, min_size=1)))
    submit(simulation, job("a"))
    simulation.submit(FailNode("one-1"))
    assert "one-1" in machines(after(simulation, 20 * MINUTE - SECOND))
    assert "one-1" not in machines(after(simulation, 2 * TICK))
    assert where(simulation) == {"a-0": "one-2"}


def test_a_node_that_takes_pods_in_thought_stays() -> None:
    nodes = [Node(name=name, allocatable={"cpu": 8000, "memory": 8 * GIB}) for name in "abc"]
    safe = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}
    pods = {node.name: [replace(lone(f"p-{node.name}", 0), annotations=safe)] for node in nodes}
    rooms = [NodeFit(node, pods[node.name]) for node in nodes]
    assert find_unneeded(nodes, pods, rooms, EvictionAllowances((), ()), AutoscalerPolicy()) == (["a", "c"], {})


def test_nodes_with_pods_go_one_after_the_other() -> None:
    policy_of_three = replace(groups(replace(FOUR, initial_size=3)), placement=PlacementPolicy(score="spread"))
    simulation = begin([], policy_of_three)
    submit(simulation, *(job(name, notes={"gpuconsole.io/checkpoint-on-notice": "1s"}) for name in "abc"))
    assert sorted(where(simulation).values()) == ["four-1", "four-2", "four-3"]
    states = machines(after(simulation, TICK + 10 * MINUTE))
    assert [name for name, text in states.items() if text.endswith("leaving")] == ["four-1"]
    assert len(machines(after(simulation, MINUTE))) == 2
    assert len(machines(after(simulation, 15 * MINUTE))) == 1
    assert "" not in where(simulation).values()


def test_ten_empty_nodes_go_at_once() -> None:
    simulation = begin([], groups(replace(ONE, initial_size=12, max_size=12)))
    assert len(machines(after(simulation, TICK + 10 * MINUTE))) == 2
    assert len(machines(after(simulation, TICK))) == 0
