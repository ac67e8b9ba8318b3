"""The engines in force, by the policy of a simulation and by what the nodes say of sharing."""

import pytest

from gpuconsole.insight.health.engines import Engine, engines, sharing
from gpuconsole.model.cluster import Node
from gpuconsole.model.gpus.sharing import STRATEGY
from gpuconsole.scheduling.kai.config import KaiPolicy
from gpuconsole.scheduling.volcano.config import VolcanoPolicy
from gpuconsole.sim.policy import AutoscalerPolicy, KarpenterPolicy, SimPolicy
from tests.support.snapshots import world

CHOSEN: dict[str, tuple[SimPolicy, list[str]]] = {
    "the usual": (SimPolicy(), ["Kueue 0.19", "kube-scheduler"]),
    "Volcano's gangs with Kueue's quota": (SimPolicy(placement=VolcanoPolicy()), ["Kueue 0.19", "Volcano"]),
    "two schedulers": (SimPolicy(second_scheduler=VolcanoPolicy()), ["Kueue 0.19", "kube-scheduler + Volcano"]),
    "KAI alone": (SimPolicy(kueue=None, placement=KaiPolicy()), ["KAI"]),
    "Karpenter": (SimPolicy(kueue=None, capacity=KarpenterPolicy()), ["kube-scheduler", "Karpenter"]),
    "groups": (SimPolicy(capacity=AutoscalerPolicy()), ["Kueue 0.19", "kube-scheduler", "Cluster Autoscaler"]),
}


@pytest.mark.parametrize("case", CHOSEN)
def test_a_policy_names_its_engines(case: str) -> None:
    policy, want = CHOSEN[case]
    assert [part.name for part in engines(policy).parts] == want


def node(name: str, offers: dict[str, int]) -> Node:
    return Node(name=name, allocatable={f"nvidia.com/{key}": amount for key, amount in offers.items()})


SLICED = node("n3", {"mig-1g.10gb": 7})
SHARED: dict[str, tuple[list[Node], Engine]] = {
    "whole GPUs": ([node("n1", {"gpu": 8})], Engine()),
    "mixed": ([SLICED], Engine("MIG mixed", "MIG")),
    "single": ([Node(name="n1", labels={"nvidia.com/mig.strategy": "single"})], Engine("MIG single", "MIG")),
    "time-slicing": ([Node(name="n1", labels={STRATEGY: "time-slicing"})], Engine("time-slicing", "TS")),
    "several": (
        [Node(name="n1", labels={STRATEGY: "mps"}), node("n2", {"gpu": 8}), SLICED],
        Engine("MIG mixed + MPS", "MIG+MPS"),
    ),
    "a node that shares nothing": ([Node(name="n1", labels={STRATEGY: "none"})], Engine()),
}


@pytest.mark.parametrize("case", SHARED)
def test_nodes_say_how_gpus_are_shared(case: str) -> None:
    nodes, want = SHARED[case]
    assert sharing(world(nodes)) == want
