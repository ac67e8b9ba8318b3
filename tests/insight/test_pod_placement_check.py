"""Whether the pods of a workload find nodes once a change has let it in: tried in a fork of the simulation."""

from typing import Any

from msgspec.structs import replace

from gpuconsole.insight.pending.why import rehearsal_of, rehearsal_on, suggestion_texts, tried
from gpuconsole.insight.unblock.changes import (
    AddNodesStep,
    AskLess,
    End,
    FewerPods,
    MoveTo,
    RaiseLimit,
    Resume,
    Step,
    UsePriority,
)
from gpuconsole.insight.unblock.placement_trial import PlacementResult, PlacementStatus, placement_check
from gpuconsole.insight.unblock.search import Suggestions
from gpuconsole.model.clock import MINUTE, SECOND
from gpuconsole.model.commands import Delete, SetActive, Submit
from gpuconsole.model.cooperative import run_to_end
from gpuconsole.model.queues import ClusterQueue, StopPolicy
from gpuconsole.scheduling.kueue.config import DEFAULT
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.scenario import build_simulation, load_scenario
from tests.support.engine_clusters import GPU
from tests.support.snapshots import waiting, world

FLAVOR = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "f"}}
FULL = "1 of 1 pods unschedulable: 1 Insufficient nvidia.com/gpu"
MORE = RaiseLimit(kind="ClusterQueue", name="q", limit="nominalQuota", flavor="f", resource=GPU, by=4)


def node(name: str, gpus: int) -> dict[str, Any]:
    room = {"cpu": "64", "memory": "256Gi", GPU: str(gpus), "pods": "110"}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"allocatable": room}}


def queue(name: str, gpus: int, **spec: Any) -> list[dict[str, Any]]:
    """A ClusterQueue with so many GPUs, and the LocalQueue that leads there."""
    resources = [{"name": GPU, "nominalQuota": gpus}]
    group = {"coveredResources": [GPU], "flavors": [{"name": "f", "resources": resources}]}
    api = {"apiVersion": "kueue.x-k8s.io/v1beta2"}
    spec = {"namespaceSelector": {}, "resourceGroups": [group], **spec}
    door = {"metadata": {"name": name, "namespace": "team"}, "spec": {"clusterQueue": name}}
    return [
        {**api, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec},
        {**api, "kind": "LocalQueue", **door},
    ]


def job(name: str, gpus: int, queue: str = "q", pods: int = 1, **template: Any) -> dict[str, Any]:
    """A Job that runs for hours; without a queue Kueue knows nothing of it."""
    labels = {"kueue.x-k8s.io/queue-name": queue} if queue else {}
    container = {"name": "main", "image": "a/b:1", "resources": {"limits": {GPU: str(gpus)}}}
    spec = {"parallelism": pods, "completions": pods, "template": {"spec": {"containers": [container], **template}}}
    meta = {"name": name, "namespace": "team", "labels": labels, "annotations": {"gpuconsole.io/duration": "9h"}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}


def cluster(*things: dict[str, Any]) -> Simulation:
    simulation = build_simulation(load_scenario([{"seed": 1, "objects": [FLAVOR, *things]}]))
    simulation.advance(simulation.now + 2 * MINUTE)
    return simulation


def key(simulation: Simulation, name: str) -> str:
    (found,) = (w.key for w in simulation.snapshot().workloads.all() if w.owner == f"Job/team/{name}")
    return found


def landed(simulation: Simulation, name: str, *steps: Step) -> PlacementResult:
    return run_to_end(placement_check(lambda: simulation, key(simulation, name))(steps))


def test_more_quota_for_a_full_cluster_is_told_with_what_its_pods_lack() -> None:
    """Eight GPUs, four of them used by work that no queue knows."""
    simulation = cluster(node("n", 8), *queue("q", 4), job("serve", 4, ""), job("first", 4), job("new", 4))
    snapshot, new = simulation.snapshot(), key(simulation, "new")
    answer = tried(snapshot, rehearsal_of(simulation, snapshot), new, lambda: simulation)
    assert answer.suggestions is not None
    assert [(one.steps, one.landing) for one in answer.suggestions.found] == [
        ((End(key(simulation, "first")),), PlacementResult(PlacementStatus.FOUND)),
        ((MORE,), PlacementResult(PlacementStatus.NONE, FULL)),
    ]
    assert [mark for mark, _ in suggestion_texts(answer.why, answer.suggestions, snapshot)] == ["✓", "✓", "⚠"]
    assert simulation.snapshot().workloads[new].reserved is False


def test_who_gets_in_anyway_may_find_no_node_either() -> None:
    """A queue that has just been opened, in a cluster of others: nobody looked at it since."""
    simulation = cluster(node("n", 4), *queue("q", 8, stopPolicy="Hold"), job("serve", 4, ""), job("new", 4))
    new, before = key(simulation, "new"), simulation.snapshot()
    opened = [replace(t, stop_policy=StopPolicy.NONE) if isinstance(t, ClusterQueue) else t for t in before.objects()]
    snapshot = world(opened, before.time)

    def simulating() -> Simulation:
        return Simulation.from_snapshot(snapshot, policy=simulation.policy, seed=0)

    answer = tried(snapshot, rehearsal_on(snapshot, DEFAULT), new, simulating)
    assert answer.suggestions == Suggestions(
        admitted_anyway=True, landing=PlacementResult(PlacementStatus.NONE, FULL), tried=1
    )
    assert list(suggestion_texts(answer.why, answer.suggestions, snapshot)) == [
        ("", "no change needed: it is admitted as it is"),
        ("⚠", f"admitted, but after 1m: {FULL}"),
    ]


def test_every_kind_of_change_is_made_in_the_simulation_too() -> None:
    higher = queue("q", 4, preemption={"withinClusterQueue": "LowerPriority"})
    simulation = cluster(node("n", 4), *higher, *queue("p", 8), job("first", 4), job("new", 8))
    assert landed(simulation, "new", AskLess(pod_set="main", resource=GPU, amount=4, was=8), End("team/x")).nodes is (
        PlacementStatus.UNSEEN
    )
    less = AskLess(pod_set="main", resource=GPU, amount=4, was=8)
    assert landed(simulation, "new", less, UsePriority(priority=1, was=0)).nodes is PlacementStatus.FOUND
    assert (
        landed(simulation, "new", AddNodesStep(flavor="f", like="n", count=1), MoveTo("p")).nodes
        is PlacementStatus.NONE
    )
    many = cluster(node("n", 4), *queue("q", 4), job("first", 2), job("new", 1, pods=4))
    assert landed(many, "new", FewerPods(pod_set="main", count=2, was=4)).nodes is PlacementStatus.FOUND
    many.submit(SetActive(key(many, "new"), False))
    assert landed(many, "new", Resume(kind="Workload", name=key(many, "new")), MORE).nodes is PlacementStatus.NONE


def test_what_is_asked_for_otherwise_keeps_its_place_in_its_queue() -> None:
    """Were it a newcomer, the next one would take what is free."""
    strict = queue("q", 4, queueingStrategy="StrictFIFO")
    simulation = cluster(node("n", 8), *strict, job("head", 8), job("next", 4))
    assert (
        landed(simulation, "head", AskLess(pod_set="main", resource=GPU, amount=4, was=8)).nodes
        is PlacementStatus.FOUND
    )


def test_pods_that_each_go_their_way_are_not_placed_as_a_gang() -> None:
    """Of three pods of four GPUs two have a place: one is missing, not all."""
    simulation = cluster(node("n", 4), node("m", 4), *queue("q", 4), job("new", 8, pods=3))
    less = AskLess(pod_set="main", resource=GPU, amount=4, was=8)
    more = RaiseLimit(kind="ClusterQueue", name="q", limit="nominalQuota", flavor="f", resource=GPU, by=8)
    found = landed(simulation, "new", less, more)
    assert found == PlacementResult(PlacementStatus.NONE, "1 of 3 pods unschedulable: 2 Insufficient nvidia.com/gpu")


def test_changes_of_one_object_are_built_upon_each_other() -> None:
    twice = replace(MORE, by=2)
    simulation = cluster(node("n", 8), *queue("q", 4), job("first", 4), job("new", 4))
    assert landed(simulation, "new", twice).nodes is PlacementStatus.UNSEEN
    assert landed(simulation, "new", twice, twice).nodes is PlacementStatus.FOUND


def test_checks_that_stay_open_are_named() -> None:
    check = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "AdmissionCheck", "metadata": {"name": "budget"}}
    rules = {"admissionChecksStrategy": {"admissionChecks": [{"name": "budget"}]}}
    things = [node("n", 8), {**check, "spec": {"controllerName": "example.com/b"}}, *queue("q", 4, **rules)]
    simulation = build_simulation(
        load_scenario([{"seed": 1, "checks": "wait", "objects": [FLAVOR, *things, job("new", 8)]}])
    )
    simulation.advance(simulation.now + MINUTE)
    assert landed(simulation, "new", MORE) == PlacementResult(PlacementStatus.CHECKS, "budget is Pending")
    snapshot, new = simulation.snapshot(), key(simulation, "new")
    answer = tried(snapshot, rehearsal_of(simulation, snapshot), new, lambda: simulation)
    assert answer.suggestions is not None
    texts = list(suggestion_texts(answer.why, answer.suggestions, snapshot))
    assert ("⚠", "reserves quota, but after 1m: budget is Pending") in texts


def test_it_comes_piece_by_piece() -> None:
    simulation = cluster(node("n", 8), *queue("q", 4), job("first", 4), job("new", 4))
    assert sum(1 for _ in placement_check(lambda: simulation, key(simulation, "new"))((MORE,))) > 1


def test_who_loses_its_place_again_within_the_minute_is_said_to() -> None:
    """Somebody with more right is planned to come half a minute later."""
    lower = queue("q", 4, preemption={"withinClusterQueue": "LowerPriority"})
    simulation = cluster(node("n", 4), *lower, job("first", 4), job("new", 4))
    high = replace(waiting("high", "team/q", 4, priority=9), created=simulation.now)
    simulation.schedule_commands(simulation.now + 30 * SECOND, Submit((high,)))
    found = landed(simulation, "new", End(key(simulation, "first")))
    assert found == PlacementResult(PlacementStatus.EVICTED, "evicted again at +30s by team/high")


def test_a_preemptor_of_a_pod_group_that_terminates_for_longer_is_not_seen_to_start() -> None:
    """The group uses its quota until its pods have ended."""
    lower = queue("q", 4, preemption={"withinClusterQueue": "LowerPriority"})
    simulation = cluster(node("n", 4), *lower, slow_group(), job("new", 4))
    assert landed(simulation, "new", UsePriority(priority=1, was=0)) == PlacementResult(PlacementStatus.UNSEEN)


def test_a_preemptor_of_a_job_that_terminates_for_longer_is_admitted_without_nodes() -> None:
    """The quota of the Job is free at once, the GPUs of its pods are not."""
    lower = queue("q", 4, preemption={"withinClusterQueue": "LowerPriority"})
    slow = job("old", 4, terminationGracePeriodSeconds=600)
    simulation = cluster(node("n", 4), *lower, slow, job("new", 4))
    assert landed(simulation, "new", UsePriority(priority=1, was=0)).nodes is PlacementStatus.NONE


def slow_group() -> dict[str, Any]:
    """A pod group of one pod with 4 GPUs and a grace period of 10 minutes."""
    template = job("old", 4, terminationGracePeriodSeconds=600)["spec"]["template"]
    labels = {"kueue.x-k8s.io/queue-name": "q", "kueue.x-k8s.io/pod-group-name": "old"}
    notes = {"kueue.x-k8s.io/pod-group-total-count": "1", "gpuconsole.io/duration": "9h"}
    meta = {"name": "old-0", "namespace": "team", "labels": labels, "annotations": notes}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, **template}


def test_without_a_simulation_or_any_node_nothing_is_said() -> None:
    assert run_to_end(placement_check(None, "team/new")((MORE,))) == PlacementResult(PlacementStatus.UNTRIED)
    simulation = cluster(node("n", 4), *queue("q", 4), job("first", 4), job("new", 4))
    simulation.submit(Delete("nodes", "n"))
    assert landed(simulation, "new", MORE) == PlacementResult(PlacementStatus.UNTRIED)
