"""What would let pods start that wait for nodes: the smallest change of each kind, tried in forks of the simulation."""

from collections.abc import Callable
from typing import Any

import pytest

from gpuconsole.insight.pending.reasons import PendingReason
from gpuconsole.insight.pending.why import ENGINE, why
from gpuconsole.insight.unblock.changes import (
    AddNodesStep,
    AskLess,
    DropSelector,
    End,
    FewerPods,
    LoosenBudget,
    LowerGang,
    Resume,
    Step,
    Tolerate,
    TriedEnough,
    in_words,
    reductions,
)
from gpuconsole.insight.unblock.placement_trial import PlacementTrial
from gpuconsole.insight.unblock.search import Suggestions, placement_suggestion_steps
from gpuconsole.model.clock import HOUR, MINUTE
from gpuconsole.model.commands import Cordon, SetTaint, Submit
from gpuconsole.model.cooperative import complete_answer
from gpuconsole.model.manifests import decode_objects
from gpuconsole.model.snapshot import EMPTY
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.scenario import build_simulation, load_scenario
from tests.support.engine_clusters import GPU
from tests.tools.check_why import States

BUDGETED = """
actions: "enqueue, allocate, preempt, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
    enablePreemptable: false
  - name: conformance
  - name: pdb
- plugins:
  - name: predicates
  - name: nodeorder
"""


def _node(name: str, gpus: int) -> dict[str, Any]:
    room = {"cpu": "64", "memory": "256Gi", GPU: str(gpus), "pods": "110"}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"allocatable": room}}


NODES = (_node("n1", 4), _node("n2", 2))
POD = {"spec": {"containers": [{"name": "main", "image": "a/b:1", "resources": {"limits": {GPU: "1"}}}]}}


def cluster(placement: dict[str, Any], *things: dict[str, Any]) -> Simulation:
    """Two nodes with 4 and 2 GPUs, where nothing queues work; it runs for two minutes."""
    engine = {"admission": "none", "placement": placement}
    simulation = build_simulation(load_scenario([{"engine": engine, "seed": 1, "objects": [*NODES, *things]}]))
    simulation.advance(simulation.now + 2 * MINUTE)
    return simulation


def send(simulation: Simulation, thing: dict[str, Any]) -> None:
    """Submit it, and let two minutes pass."""
    simulation.submit(Submit(decode_objects([thing])[0]))
    simulation.advance(simulation.now + 2 * MINUTE)


def torch(name: str, pods: int, gpus: int = 1, **template: Any) -> dict[str, Any]:
    """A gang of as many pods, by Kubeflow."""
    container = {**POD["spec"]["containers"][0], "resources": {"limits": {GPU: str(gpus)}}}
    worker = {"replicas": pods, "template": {"spec": {"containers": [container], **template}}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name, "annotations": {"gpuconsole.io/duration": "5h"}},
        "spec": {"pytorchReplicaSpecs": {"Worker": worker}},
    }


def volcano(name: str, pods: int, least: int, priority: str = "", **labels: str) -> dict[str, Any]:
    spec = {**POD["spec"], **({"priorityClassName": priority} if priority else {})}
    task = {"name": "w", "replicas": pods, "template": {"metadata": {"labels": labels}, "spec": spec}}
    more = {"priorityClassName": priority} if priority else {}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, "annotations": {"gpuconsole.io/duration": "5h"}},
        "spec": {"schedulerName": "volcano", "minAvailable": least, "queue": "default", "tasks": [task], **more},
    }


def grouped(version: str, spec: dict[str, Any], **meta: Any) -> list[dict[str, Any]]:
    """Eight pods that name a PodGroup, and the group."""
    group = {"apiVersion": version, "kind": "PodGroup", "metadata": {"name": "g"}, "spec": spec}
    pods = [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"w-{n}", **meta}, **POD} for n in range(8)]
    return [group, *pods]


QUEUE = {
    "apiVersion": "scheduling.volcano.sh/v1beta1",
    "kind": "Queue",
    "metadata": {"name": "default"},
    "spec": {"weight": 1},
    "status": {"state": "Open"},
}
ENDLESS = {"quota": -1, "overQuotaWeight": 1, "limit": -1}


def kai_queue(name: str, **spec: str) -> dict[str, Any]:
    resources = dict.fromkeys(("gpu", "cpu", "memory"), ENDLESS)
    return {
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"resources": resources, **spec},
    }


def found(simulation: Simulation, key: str) -> list[tuple[Step, ...]]:
    found = complete_answer(placement_suggestion_steps(simulation, key))
    assert found.complete
    return [one.steps for one in found.found]


GANGS: dict[str, tuple[Callable[[], Simulation], str, list[tuple[Step, ...]]]] = {
    "by kube-scheduler": (
        lambda: cluster({}, torch("train", 8)),
        "PyTorchJob/default/train",
        [
            (LowerGang(gang="train", field="minAvailable", count=6, was=8),),
            (FewerPods(pod_set="worker", count=6, was=8),),
            (AddNodesStep(flavor="", like="n1", count=1),),
        ],
    ),
    "by Volcano": (
        lambda: cluster({"engine": "Volcano"}, QUEUE, volcano("train", 9, 9)),
        "VolcanoJob/default/train",
        [
            (LowerGang(gang="train", field="minAvailable", count=6, was=9),),
            (FewerPods(pod_set="w", count=6, was=9),),
            (AddNodesStep(flavor="", like="n1", count=1),),
        ],
    ),
    "by KAI": (
        lambda: cluster(
            {"engine": "KAI"},
            kai_queue("org"),
            kai_queue("team", parentQueue="org"),
            *grouped(
                "scheduling.run.ai/v2alpha2",
                {"minMember": 8, "queue": "team"},
                annotations={"pod-group-name": "g"},
                labels={"kai.scheduler/queue": "team"},
            ),
        ),
        "default/w-0",
        [
            (LowerGang(gang="PodGroup/default/g", field="minMember", count=6, was=8),),
            (AddNodesStep(flavor="", like="n1", count=1),),
        ],
    ),
    "by the Coscheduling plugin": (
        lambda: cluster(
            {},
            *grouped("scheduling.x-k8s.io/v1alpha1", {"minMember": 8}, labels={"scheduling.x-k8s.io/pod-group": "g"}),
        ),
        "default/w-0",
        [
            (LowerGang(gang="PodGroup/default/g", field="minMember", count=6, was=8),),
            (AddNodesStep(flavor="", like="n1", count=1),),
        ],
    ),
}


@pytest.mark.parametrize(("make", "key", "want"), GANGS.values(), ids=GANGS)
def test_a_gang_may_start_with_fewer_pods(
    make: Callable[[], Simulation], key: str, want: list[tuple[Step, ...]]
) -> None:
    """Six one-GPU pods find a node."""
    simulation = make()
    assert found(simulation, key) == want
    trial = PlacementTrial(simulation, key)
    assert all(trial.works(steps) and all(map(trial.fails, reductions(steps))) for steps in want)


def test_whose_end_makes_room_is_named_alone_or_together() -> None:
    simulation = cluster({}, torch("a", 2), torch("b", 3), torch("late", 5))
    assert found(simulation, "PyTorchJob/default/late")[:3] == [
        (End("PyTorchJob/default/b"), End("PyTorchJob/default/a")),
        (LowerGang(gang="late", field="minAvailable", count=1, was=5),),
        (FewerPods(pod_set="worker", count=1, was=5),),
    ]


def test_a_pod_that_no_node_is_large_enough_for_asks_for_less() -> None:
    simulation = cluster({}, torch("large", 1, gpus=6))
    assert found(simulation, "PyTorchJob/default/large") == [
        (AskLess(pod_set="worker", resource=GPU, amount=4, was=6),)
    ]


def test_a_node_is_uncordoned_or_its_taint_tolerated() -> None:
    simulation = cluster({})
    simulation.submit(Cordon("n1", True))
    simulation.submit(SetTaint("n2", "spare"))
    send(simulation, torch("train", 2))
    assert found(simulation, "PyTorchJob/default/train") == [
        (AddNodesStep(flavor="", like="n1", count=1),),
        (Resume(kind="Node", name="n1"),),
        (Tolerate(pod_set="worker", key="spare", effect="NoSchedule"),),
    ]


def test_a_selector_that_no_node_has_is_left_out() -> None:
    simulation = cluster({}, torch("train", 2, nodeSelector={"gpu": "h100"}))
    assert found(simulation, "PyTorchJob/default/train") == [(DropSelector(pod_set="worker", label="gpu"),)]


def test_who_starts_within_a_minute_needs_nothing() -> None:
    simulation = cluster({}, torch("runs", 2))
    found = complete_answer(placement_suggestion_steps(simulation, "PyTorchJob/default/runs"))
    assert found == Suggestions(admitted_anyway=True, tried=1)


def test_the_bound_on_what_is_tried_is_told() -> None:
    trial = PlacementTrial(cluster({}, torch("train", 8)), "PyTorchJob/default/train", most_tries=1)
    assert trial.fails(())
    with pytest.raises(TriedEnough):
        trial.works(())


NOBODY = {
    "apiVersion": "policy/v1",
    "kind": "PodDisruptionBudget",
    "metadata": {"name": "keep"},
    "spec": {"maxUnavailable": 0, "selector": {}},
}
"""A budget that lets nobody go."""
CLASSES = [
    {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}
    for name, value in (("low", 10), ("high", 1000))
]


def budgeted(conf: str = BUDGETED, least: int = 6) -> Simulation:
    """Six pods of low priority fill the nodes, and a budget keeps so many of them; two of high priority come."""
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "keep"},
        "spec": {"minAvailable": least, "selector": {"matchLabels": {"app": "dev"}}},
    }
    simulation = cluster(
        {"engine": "Volcano", "conf": conf}, QUEUE, *CLASSES, budget, volcano("dev", 6, 1, "low", app="dev")
    )
    send(simulation, volcano("serve", 2, 2, "high"))
    return simulation


def test_a_budget_is_the_blocker_where_the_scheduler_asks_budgets() -> None:
    simulation = budgeted()
    snapshot = simulation.snapshot()
    answer = why(snapshot, None, "VolcanoJob/default/serve", lambda: simulation)
    assert (answer.code, answer.explanation.headline) == (
        PendingReason.DISRUPTION_BUDGET,
        "Preemption is blocked by PodDisruptionBudget default/keep: 0 of its 6 pods may be evicted.",
    )
    arithmetic, who = answer.explanation.lines[:2]
    assert arithmetic == "PodDisruptionBudget default/keep: minAvailable 6; 6 pods, 6 healthy → 0 may be evicted"
    assert who.startswith("protects default/dev-w-0 on n1, default/dev-w-1 on n1, ")
    assert [(one.source, one.code) for one in answer.evidence] == [
        (ENGINE, PendingReason.DISRUPTION_BUDGET),
        ("Volcano", PendingReason.GANG),
    ]
    assert (LoosenBudget(budget="default/keep", by=1),) in found(simulation, "VolcanoJob/default/serve")


def test_a_budget_that_lets_enough_go_is_no_blocker() -> None:
    simulation = budgeted(least=2)
    assert (
        why(simulation.snapshot(), None, "VolcanoJob/default/serve", lambda: simulation).code
        is PendingReason.NOT_WAITING
    )


def test_kube_scheduler_evicts_whom_a_budget_protects_if_there_are_no_others() -> None:
    simulation = cluster({}, *CLASSES, NOBODY, torch("dev", 6, priorityClassName="low"))
    send(simulation, torch("serve", 2, priorityClassName="high"))
    answer = why(simulation.snapshot(), None, "PyTorchJob/default/serve", lambda: simulation)
    assert answer.code is PendingReason.NOT_WAITING


def test_a_drain_that_a_budget_holds_up_is_told_of_what_runs() -> None:
    simulation = cluster({}, NOBODY, torch("serve", 4))
    simulation.submit(Cordon("n1", True))
    answer = why(simulation.snapshot(), None, "PyTorchJob/default/serve", lambda: simulation)
    assert (answer.code, answer.explanation.lines) == (
        PendingReason.NOT_WAITING,
        ("cordoned: n1; PodDisruptionBudget default/keep allows no eviction",),
    )


WORDS = {
    "lower minAvailable of train from 4 to 1": LowerGang(gang="train", field="minAvailable", count=1, was=4),
    "let PodDisruptionBudget ml/keep allow 2 more disruptions": LoosenBudget(budget="ml/keep", by=2),
    "uncordon node n1": Resume(kind="Node", name="n1"),
    "2 more nodes like n1": AddNodesStep(flavor="", like="n1", count=2),
}


@pytest.mark.parametrize(("text", "step"), WORDS.items(), ids=WORDS)
def test_steps_in_words(text: str, step: Step) -> None:
    assert in_words((step,), EMPTY) == text


def test_no_trial_changes_the_cluster() -> None:
    simulation = cluster({}, torch("train", 8))
    before = simulation.snapshot()
    found(simulation, "PyTorchJob/default/train")
    assert list(simulation.snapshot().objects()) == list(before.objects())
    assert simulation.now - before.time < HOUR


def test_on_random_clusters_each_suggestion_is_enough_and_none_of_its_parts_can_be_less() -> None:
    states = States()
    for seed in range(12):
        states.judge_places(seed)
    assert states.misses == []
    assert states.suggested > 10
