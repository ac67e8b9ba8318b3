"""Orders that change weights, cohorts, policies, taints, machines and settings: what comes of each, and refusals."""

import pytest
from msgspec.structs import replace

from gpuconsole.model.clock import MINUTE, SECOND
from gpuconsole.model.cluster import Node
from gpuconsole.model.commands import (
    AddNodes,
    Command,
    Divide,
    Later,
    Reconfigure,
    SetCohort,
    SetPreemption,
    SetQuota,
    SetTaint,
    SetWeight,
    Submit,
)
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.labels import Taint
from gpuconsole.model.objects import Object
from gpuconsole.model.queues import Cohort, PreemptionPolicy, Quota, ResourceFlavor
from gpuconsole.sim.engine import Simulation
from tests.support.sim_cluster import A100, GPU, START, node, nodes, queue, start, submit, two_teams, workload

A100_FLAVOR = ResourceFlavor(name="a100", node_labels=A100)
NEVER, ANY = PreemptionPolicy.NEVER, PreemptionPolicy.ANY


def lines(simulation: Simulation) -> list[str]:
    """What was told since the last drain: kind, reason and text."""
    return [f"{e.what}: {e.reason} {e.message}".strip() for e in simulation.drain() if isinstance(e, HistoryEvent)]


def refusal(simulation: Simulation, command: Command) -> str:
    simulation.drain()
    simulation.submit(command)
    told = [e for e in simulation.drain() if isinstance(e, HistoryEvent) and e.what is HistoryEventKind.COMMAND_REFUSED]
    return told[0].message if told else ""


def admitted(simulation: Simulation) -> list[str]:
    return sorted(w.key for w in simulation.snapshot().workloads.all() if w.admitted)


REFUSED: dict[str, tuple[Command, str]] = {
    "a negative weight": (SetWeight("red", -1.0), "weight -1 is not 0 or more"),
    "the weight of nobody": (SetWeight("green", 2.0), "there is no ClusterQueue green"),
    "the weight of no door": (SetWeight("red/x", 2.0, "LocalQueue"), "there is no LocalQueue red/x"),
    "moving nobody": (SetCohort("org", "x", "Cohort"), "there is no Cohort org"),
    "a taint without a key": (SetTaint("n1", ""), "the key of a taint cannot be empty"),
    "a taint whose key is no label": (
        SetTaint("n1", "a b"),
        "'a b' is not a valid key of a taint: an optional domain and '/', "
        "then at most 63 letters, digits, '-', '_' and '.'",
    ),
    "a taint whose value is no label": (
        SetTaint("n1", "a", "b c"),
        "'b c' is not a valid value of a taint: at most 63 letters, digits, '-', '_' and '.', "
        "with a letter or digit first and last",
    ),
    "preempting in the queue whatever its priority": (
        SetPreemption("red", within_cluster_queue=ANY),
        "withinClusterQueue cannot be Any; it is one of Never, LowerPriority, LowerOrNewerEqualPriority",
    ),
    "borrowing with preemption but without reclaim": (
        SetPreemption("red", reclaim_within_cohort=NEVER, borrow_within_cohort=PreemptionPolicy.LOWER_PRIORITY),
        "borrowWithinCohort needs a reclaimWithinCohort that is not Never",
    ),
    "taking away a taint that is not there": (SetTaint("n1", "k", removed=True), "node n1 has no taint k:NoSchedule"),
    "tainting nobody": (SetTaint("n9", "k"), "there is no node n9"),
    "no nodes at all": (AddNodes("n1", 0), "0 nodes cannot join; 1 to 10,000 can"),
    "dividing a node that is not there": (Divide("n9", "all-1g.10gb"), "there is no node n9"),
    "an unknown gate": (
        Reconfigure(feature_gates={"FairPlay": True}),
        "feature gate FairPlay: unrecognized feature gate: FairPlay; did you mean TASFailedNodeReplacement?",
    ),
    "an unknown key of placement": (
        Reconfigure(placement={"scores": "spread"}),
        "placement: unknown key 'scores'; did you mean 'score'?",
    ),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_refusals_say_why_and_change_nothing(case: tuple[Command, str]) -> None:
    command, why = case
    simulation = start(two_teams())
    before = list(simulation.snapshot().objects())

    assert (refusal(simulation, command), list(simulation.snapshot().objects())) == (why, before)


def test_limits_that_are_left_out_stay_and_none_takes_one_away() -> None:
    simulation = start(two_teams())
    found = []
    for command in (
        SetQuota("red", "a100", GPU, 4, 3, 2),
        SetQuota("red", "a100", GPU, 8),
        SetQuota("red", "a100", GPU, 8, borrowing_limit=None),
        SetQuota("red", "a100", GPU, 8, lending_limit=0),
    ):
        simulation.submit(command)
        found.append(simulation.snapshot().cluster_queues["red"].quotas()["a100", GPU])

    assert found == [Quota(4, 3, 2), Quota(8, 3, 2), Quota(8, None, 2), Quota(8, None, 0)]


def test_a_queue_with_limits_cannot_leave_its_cohort() -> None:
    simulation = start(two_teams())
    simulation.submit(SetQuota("red", "a100", GPU, 4, 2, None))

    assert refusal(simulation, SetCohort("red", "")) == (
        "ClusterQueue red has borrowing or lending limits, which it can have in a cohort only"
    )


def test_a_queue_that_joins_a_cohort_borrows_there() -> None:
    simulation = start([A100_FLAVOR, *queue("red", 4, cohort=""), *queue("blue", 4), *nodes(2)])
    submit(simulation, workload("big", gpus=4, pods=2))
    assert admitted(simulation) == []
    simulation.submit(SetCohort("red", "org"))
    simulation.advance(START + 2 * SECOND)

    assert admitted(simulation) == ["red/big"]


def test_a_cohort_that_moves_takes_its_queues_along() -> None:
    queues = [*queue("red", 4, cohort="a"), *queue("blue", 4, cohort="b"), Cohort(name="a")]
    simulation = start([A100_FLAVOR, *queues, node("n1", 8)])
    submit(simulation, workload("big", gpus=8))
    simulation.submit(SetCohort("a", "b", "Cohort"))
    simulation.advance(START + 2 * SECOND)

    assert (simulation.snapshot().cohorts["a"].parent, admitted(simulation)) == ("b", ["red/big"])


def test_a_cohort_is_not_its_own_parent() -> None:
    simulation = start([A100_FLAVOR, *queue("red", 4, cohort="a"), Cohort(name="a", parent="b")])

    assert refusal(simulation, SetCohort("a", "a", "Cohort")) == "Cohort a cannot be its own parent"
    assert simulation.snapshot().cohorts["a"].parent == "b"


def test_who_may_reclaim_no_longer_waits_for_the_borrower() -> None:
    simulation = start(two_teams())
    submit(simulation, workload("borrows", gpus=4, pods=2))
    simulation.submit(SetPreemption("blue", reclaim_within_cohort=NEVER))
    submit(simulation, workload("owner", "blue", gpus=4))
    simulation.advance(START + MINUTE)

    kept = simulation.snapshot().cluster_queues["blue"].preemption
    assert (kept.within_cluster_queue, kept.reclaim_within_cohort) == (PreemptionPolicy.LOWER_PRIORITY, NEVER)
    assert admitted(simulation) == ["red/borrows"]


def test_no_execute_evicts_who_does_not_tolerate_it_and_keeps_them_away() -> None:
    simulation = start(two_teams())
    submit(simulation, workload("runs", gpus=4))
    home = next(pod.node for pod in simulation.snapshot().pods.all())
    simulation.submit(SetTaint(home, "hot", effect="NoExecute"))
    simulation.advance(START + MINUTE)

    assert simulation.snapshot().nodes[home].taints == (Taint("hot", "", "NoExecute"),)
    assert {pod.node for pod in simulation.snapshot().pods.all() if not pod.done} == {"n1", "n2"} - {home}


def test_nodes_like_another_take_work_though_that_one_is_cordoned() -> None:
    things: list[Object] = [A100_FLAVOR, *queue("red", 8), replace(node("n1"), unschedulable=True)]
    simulation = start(things)
    submit(simulation, workload("two", gpus=4, pods=2))
    simulation.submit(AddNodes("n1", 2))
    simulation.advance(START + SECOND)

    found = simulation.snapshot()
    assert [(n.name, n.unschedulable, n.labels["kubernetes.io/hostname"]) for n in found.nodes.all()] == [
        ("n1", True, "n1"),
        ("n1-1", False, "n1-1"),
        ("n1-2", False, "n1-2"),
    ]
    assert sorted(pod.node for pod in found.pods.all()) == ["n1-1", "n1-2"]


def test_dividing_a_node_fails_who_holds_whole_gpus_and_offers_instances() -> None:
    product = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
    room = {GPU: 2, "cpu": 64_000, "memory": 2**40, "pods": 110}
    machine = Node(name="n1", labels={"accelerator": "a100-80gb", **product}, capacity=room, allocatable=room)
    simulation = start([A100_FLAVOR, *queue("red", 4), machine])
    submit(simulation, workload("whole", gpus=1))
    simulation.drain()
    simulation.submit(Divide("n1", "all-1g.10gb"))
    divided = simulation.snapshot().nodes["n1"]

    assert "node-changed: GpusDivided all-1g.10gb" in lines(simulation)
    assert {name: amount for name, amount in divided.allocatable.items() if "gpu" in name or "mig" in name} == {
        "nvidia.com/mig-1g.10gb": 14
    }
    simulation.submit(Divide("n1", "all-7g.80gb"))
    assert simulation.snapshot().nodes["n1"].allocatable["nvidia.com/mig-7g.80gb"] == 2


def test_the_same_geometry_again_changes_nothing() -> None:
    product = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
    simulation = start([Node(name="n1", labels=product, allocatable={GPU: 2}, capacity={GPU: 2})])
    simulation.submit(Divide("n1", "all-1g.10gb"))
    simulation.drain()
    simulation.submit(Divide("n1", "all-1g.10gb"))

    assert lines(simulation) == ["command-needless: Divide the GPUs of node n1 already have this MIG configuration"]


def test_other_settings_decide_from_then_on() -> None:
    simulation = start(two_teams())
    submit(simulation, workload("runs", gpus=1))
    simulation.submit(Reconfigure(fair_sharing=True, feature_gates={"PartialAdmission": False}))
    kueue = simulation.policy.kueue
    assert kueue is not None
    simulation.submit(Reconfigure(feature_gates={"PartialAdmission": True}))
    again = simulation.policy.kueue
    assert again is not None

    assert (kueue.fair_sharing, dict(kueue.gates)) == (True, {"PartialAdmission": False})
    assert (again.fair_sharing, dict(again.gates)) == (True, {})
    assert admitted(simulation) == ["red/runs"]


def test_a_scheduler_that_starts_anew_knows_who_is_where() -> None:
    simulation = start(two_teams())
    submit(simulation, workload("runs", gpus=3))
    simulation.submit(Reconfigure(placement={"score": "spread"}))
    submit(simulation, workload("next", gpus=3))
    simulation.advance(START + SECOND)

    assert sorted(pod.node for pod in simulation.snapshot().pods.all()) == ["n1", "n2"]


def test_settings_that_are_in_force_start_nobody_anew() -> None:
    simulation = start(two_teams())
    session = simulation.session
    simulation.submit(Reconfigure(fair_sharing=False, placement={"score": "binpack"}))

    assert simulation.session is session


def test_what_is_for_later_happens_then() -> None:
    simulation = start(two_teams())
    simulation.submit(Later(MINUTE, Submit((workload("later", gpus=1),))))
    simulation.advance(START + MINUTE - 1)
    assert admitted(simulation) == []
    simulation.advance(START + MINUTE)

    assert admitted(simulation) == ["red/later"]


def test_applying_a_manifest_that_is_in_place_says_nothing() -> None:
    simulation = start(two_teams())
    simulation.drain()
    simulation.submit(Submit(tuple(two_teams())))

    assert lines(simulation) == []
