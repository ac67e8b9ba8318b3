"""Why a workload has no quota in one word, behind the gate UnadmittedWorkloadsObservability."""

from typing import NamedTuple

import pytest

from gpuconsole.model.clock import SECOND
from gpuconsole.model.events import Refuse
from gpuconsole.model.labels import HOSTNAME, LabelSelector
from gpuconsole.model.pod_template import PodSet, PodTemplate
from gpuconsole.model.queues import ClusterQueue, FlavorQuotas, Quota, ResourceFlavor, ResourceGroup
from gpuconsole.model.workloads import Admission, CheckState, PodSetAssignment, Workload
from gpuconsole.scheduling.kueue import conditions
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.messages import GranularReason, most_severe
from tests.scheduling.kueue.test_topology import FLAVOR, required, site
from tests.support.kueue_cluster import ANY, GPU, World, pods, queue, workload

GRANULAR = KueueConfig(gates={"UnadmittedWorkloadsObservability": True})


class Refused(NamedTuple):
    """A workload `w` in ClusterQueue `q`, of flavors `f` and `g`, after a cycle."""

    queue: ClusterQueue
    pod_sets: tuple[PodSet, ...]
    want: str
    running: int = 0
    """GPUs of a workload of the same priority that runs in `q`."""


PICKY = pods(1, 1, template=PodTemplate(node_selector={"kind": "none"}))
TWO_GROUPS = (
    ResourceGroup((GPU,), (FlavorQuotas("f", {GPU: Quota(2)}),)),
    ResourceGroup(("cpu",), (FlavorQuotas("g", {"cpu": Quota(2000)}),)),
)

REFUSALS: dict[str, Refused] = {
    "quota that others hold may come free": Refused(queue("q", 2), (pods(1, 2),), "WaitingForQuota", running=1),
    "nobody to preempt is waiting, too": Refused(
        queue("q", 2, cohort="c", reclaim=ANY), (pods(1, 2),), "WaitingForQuota", running=1
    ),
    "more than there ever is": Refused(queue("q", 2), (pods(1, 3),), "ExceedsMaxQuota"),
    "no flavor has such nodes": Refused(queue("q", 2), (PICKY,), "NoMatchingFlavor"),
    "no flavor has such a resource": Refused(queue("q", 2), (pods(1, 0, cpu=1),), "NoMatchingFlavor"),
    "of two flavors the one that comes closest counts": Refused(
        queue("q", {"f": 2, "g": 4}), (pods(1, 3),), "WaitingForQuota", running=4
    ),
    "of two resources in different groups the hopeless one counts": Refused(
        queue("q", groups=TWO_GROUPS), (pods(1, 2, cpu=3000),), "ExceedsMaxQuota", running=1
    ),
    "of two pod sets only the first that fails is told of": Refused(
        queue("q", 2), (pods(1, 3, name="a"), PICKY), "ExceedsMaxQuota"
    ),
    "a namespace that the queue does not take": Refused(
        queue("q", 2, selector=LabelSelector(match_labels={"team": "other"})), (pods(),), "Misconfigured"
    ),
}


@pytest.mark.parametrize("case", REFUSALS.values(), ids=REFUSALS)
def test_a_refusal_names_its_cause(case: Refused) -> None:
    labelled = (
        ResourceFlavor(name="f", node_labels={"kind": "big"}),
        ResourceFlavor(name="g", node_labels={"kind": "b"}),
    )
    world = World(case.queue, *labelled, config=GRANULAR)
    if case.running:
        flavor = "g" if "g" in {flavor for flavor, resource in case.queue.quotas() if resource == GPU} else "f"
        world.apply(holding(case.running, flavor))
    world.apply(Workload(namespace="team", name="w", queue="q", created=SECOND, pod_sets=case.pod_sets))
    decisions = world.cycle()
    assert [(d.workload, d.reason) for d in decisions if isinstance(d, Refuse)] == [("team/w", case.want)]


def holding(gpus: int, flavor: str) -> Workload:
    """A workload that runs in `q`."""
    given = PodSetAssignment(flavors={GPU: flavor}, usage={GPU: gpus}, count=1)
    granted = Admission(cluster_queue="q", pod_sets=(given,))
    return conditions.sync_admitted(conditions.reserve_quota(workload("running", "q", gpus), granted, SECOND), SECOND)


def test_the_reason_is_pending_without_the_gate() -> None:
    world = World(queue("q", 2))
    world.apply(workload("w", "q", 3))
    assert [d.reason for d in world.cycle() if isinstance(d, Refuse)] == ["Pending"]


def test_pods_that_even_an_empty_topology_cannot_take() -> None:
    world = World(*site(((2,),)), FLAVOR, queue("q", 8), config=GRANULAR)
    world.apply(workload("w", "q", pod_sets=(pods(1, 4, topology=required(HOSTNAME)),)))
    assert [d.reason for d in world.cycle() if isinstance(d, Refuse)] == ["TopologyPlacementFailed"]


def test_who_waits_for_victims_says_so() -> None:
    world = World(queue("a", 2, cohort="c", reclaim=ANY), queue("b", 0, cohort="c"), config=GRANULAR)
    world.run(workload("big", "b", 2), admitted=True)
    world.apply(workload("w", "a", 2))
    assert [d.reason for d in world.cycle() if isinstance(d, Refuse)] == ["WaitingForPreemptedWorkloads"]


def test_the_most_severe_is_the_one_that_waiting_helps_least() -> None:
    ranked = [
        GranularReason.TOPOLOGY_PLACEMENT_FAILED,
        GranularReason.WAITING_FOR_QUOTA,
        GranularReason.EXCEEDS_MAX_QUOTA,
    ]
    assert most_severe([*ranked, GranularReason.NO_MATCHING_FLAVOR]) is GranularReason.NO_MATCHING_FLAVOR
    assert most_severe(ranked) is GranularReason.EXCEEDS_MAX_QUOTA
    assert most_severe([]) is GranularReason.NONE


def test_with_the_gate_a_refusal_also_says_that_the_workload_is_not_admitted() -> None:
    told = conditions.set_pending_reason(workload("w", "q"), "WaitingForQuota", "no room", SECOND, granular=True)
    assert [(c.type, c.status, c.reason) for c in told.conditions] == [
        ("QuotaReserved", False, "WaitingForQuota"),
        ("Admitted", False, "NoReservation"),
    ]
    assert conditions.sync_admitted(workload("w", "q"), SECOND, granular=True) == workload("w", "q")


def test_with_the_gate_checks_that_are_missing_have_a_reason_of_their_own() -> None:
    waiting = Workload(name="w", checks=(CheckState(name="prov"),))
    reserved = conditions.reserve_quota(waiting, Admission(cluster_queue="q"), SECOND)
    admitted = conditions.sync_admitted(reserved, SECOND, granular=True).condition("Admitted")
    assert admitted is not None
    assert (admitted.status, admitted.reason) == (False, "UnsatisfiedAdmissionChecks")
