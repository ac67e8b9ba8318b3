"""Pods go to the domains of their workload's assignment: by their indices, or where room is left."""

from collections.abc import Mapping
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from gpuconsole.model.cluster import Pod, PodPhase
from gpuconsole.model.labels import HOSTNAME
from gpuconsole.model.pod_template import PodSet, PodTemplate, TopologyRequest
from gpuconsole.model.workloads import Admission, Condition, PodSetAssignment, TopologyDomain, Workload
from gpuconsole.scheduling.kueue.topology.node_failures import ungate_pods

GATE = "kueue.x-k8s.io/topology"
OFFSET = {"kueue.x-k8s.io/workload": "w", "kueue.x-k8s.io/pod-index-offset": "1"}
INDEXED = TopologyRequest(index_label="index")
JOBS = TopologyRequest(index_label="index", subgroup_index_label="job", subgroup_count=2)


def pod(name: str, *, index: str = "", job: str = "", on: str = "", pod_set: str = "main", **facts: object) -> Pod:
    """A gated pod, or one that was let go to a node."""
    labels = {"kueue.x-k8s.io/podset": pod_set, **({"index": index} if index else {}), **({"job": job} if job else {})}
    made = Pod(
        namespace="team",
        name=name,
        labels=labels,
        annotations={"kueue.x-k8s.io/workload": "w"},
        gates=() if on else (GATE,),
        template=PodTemplate(node_selector={HOSTNAME: on} if on else {}),
    )
    return replace(made, **facts)


def workload(*hosts: tuple[str, int], request: TopologyRequest | None = None, count: int = 0) -> Workload:
    total = count or sum(pods for _, pods in hosts)
    domains = tuple(TopologyDomain((name,), pods) for name, pods in hosts)
    assignment = PodSetAssignment(count=total, levels=(HOSTNAME,), topology=domains)
    return Workload(
        namespace="team",
        name="w",
        pod_sets=(PodSet(count=total, topology=request),),
        admission=Admission(cluster_queue="q", pod_sets=(assignment,)),
        conditions=(Condition("Admitted", True),),
    )


class Case(NamedTuple):
    workload: Workload
    pods: tuple[Pod, ...]
    want: Mapping[str, str]


TWO = workload(("x", 2), ("y", 1))
RANKED = workload(("x", 2), ("y", 1), request=INDEXED)

CASES: dict[str, Case] = {
    "without indices the domains are filled in turn": Case(
        TWO, (pod("a"), pod("b"), pod("c")), {"a": "x", "b": "x", "c": "y"}
    ),
    "pods that run count where they are": Case(TWO, (pod("a"), pod("b", on="x"), pod("c")), {"a": "x", "c": "y"}),
    "pods that are done make room": Case(
        TWO, (pod("a", on="x", phase=PodPhase.FAILED), pod("b"), pod("c"), pod("d")), {"b": "x", "c": "x", "d": "y"}
    ),
    "there are no more places than pods were counted": Case(
        TWO, (pod("a"), pod("b"), pod("c"), pod("d")), {"a": "x", "b": "x", "c": "y"}
    ),
    "indices are ranks": Case(
        RANKED,
        (pod("a", index="2"), pod("b", index="0"), pod("c", index="1")),
        {"a": "y", "b": "x", "c": "x"},
    ),
    "a late pod gets the place of its rank": Case(RANKED, (pod("a", index="2"),), {"a": "y"}),
    "each job of a pod set counts from 0": Case(
        workload(("x", 1), ("y", 2), ("z", 1), request=JOBS),
        (pod("a", index="1", job="1"), pod("b", index="0", job="1"), pod("c", index="1", job="0")),
        {"a": "z", "b": "y", "c": "y"},
    ),
    "the same index twice is no rank": Case(RANKED, (pod("a", index="2"), pod("b", index="2")), {"a": "x", "b": "x"}),
    "an index out of range is none": Case(RANKED, (pod("a", index="3"), pod("b", index="2")), {"a": "x", "b": "x"}),
    "a pod that runs elsewhere than its rank says voids all ranks": Case(
        RANKED, (pod("a", index="0", on="y"), pod("b", index="2")), {"b": "x"}
    ),
    "more ranks than places void them": Case(
        workload(("x", 1), request=INDEXED, count=2), (pod("a", index="1"),), {"a": "x"}
    ),
    "indices may begin later": Case(
        RANKED,
        (pod("a", index="1", annotations=OFFSET), pod("b", index="3", annotations=OFFSET)),
        {"a": "x", "b": "y"},
    ),
    "nobody is let go to a node that failed": Case(
        replace(TWO, unhealthy_nodes=("x",)), (pod("a"), pod("b"), pod("c")), {"c": "y"}
    ),
    "nor of a workload that is not admitted": Case(replace(TWO, conditions=()), (pod("a"),), {}),
    "nor a pod of another workload": Case(
        TWO, (pod("a", annotations={"kueue.x-k8s.io/workload": "other"}), pod("b", namespace="other")), {}
    ),
    "nor one that is of no pod set": Case(TWO, (pod("a", labels={}), pod("b", pod_set="other")), {}),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_pods_are_let_go_to_their_places(case: Case) -> None:
    found = ungate_pods(case.workload, case.pods)
    assert {key.removeprefix("team/"): labels for key, labels in found.items()} == {
        name: {HOSTNAME: host} for name, host in case.want.items()
    }


def test_the_leader_of_a_group_has_rank_0_and_its_workers_follow() -> None:
    request = TopologyRequest(index_label="index", group="g")
    sets = (PodSet(name="leader", topology=request), PodSet(name="workers", count=2, topology=request))
    given = (
        PodSetAssignment(name="leader", levels=(HOSTNAME,), topology=(TopologyDomain(("x",), 1),)),
        PodSetAssignment(
            name="workers", count=2, levels=(HOSTNAME,), topology=(TopologyDomain(("x",), 1), TopologyDomain(("y",), 1))
        ),
    )
    group = replace(TWO, pod_sets=sets, admission=Admission(cluster_queue="q", pod_sets=given))
    pods = (
        pod("w2", index="2", pod_set="workers"),
        pod("w1", index="1", pod_set="workers"),
        pod("l", index="0", pod_set="leader"),
    )
    assert ungate_pods(group, pods) == {
        "team/l": {HOSTNAME: "x"},
        "team/w1": {HOSTNAME: "x"},
        "team/w2": {HOSTNAME: "y"},
    }


def test_an_offset_that_is_no_number_is_refused() -> None:
    notes = {"kueue.x-k8s.io/workload": "w", "kueue.x-k8s.io/pod-index-offset": "one"}
    with pytest.raises(ValueError, match="one"):
        ungate_pods(RANKED, [pod("a", index="1", annotations=notes)])
