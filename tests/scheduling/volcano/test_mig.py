"""MIG instances that are made as pods come, under Volcano: what is promised fits beside what is there."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpuconsole.model.cluster import Node, Pod, PodPhase
from gpuconsole.model.events import Bind
from gpuconsole.model.gpus.mig import MigPlacement
from gpuconsole.model.gpus.mig_reconfiguration import DYNAMIC, division_of
from gpuconsole.model.pod_template import Container, PodTemplate
from gpuconsole.model.resources import CPU, PODS
from gpuconsole.model.volcano import PodGroup
from gpuconsole.scheduling.volcano.api.task import GROUP_NAME
from gpuconsole.scheduling.volcano.config import VolcanoPolicy
from gpuconsole.scheduling.volcano.engine import VolcanoPlacement

MIG = "nvidia.com/mig-"
MOST = {"1g.10gb": 7, "2g.20gb": 3, "3g.40gb": 2, "4g.40gb": 1, "7g.80gb": 1}


def machine(name: str = "n", gpus: int = 1) -> Node:
    amounts = {CPU: 64_000, PODS: 50, **{MIG + profile: count * gpus for profile, count in MOST.items()}}
    labels = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
    return Node(name=name, labels=labels, annotations={DYNAMIC: str(gpus)}, allocatable=amounts, capacity=amounts)


def pod(name: str, profile: str, group: str = "") -> Pod:
    template = PodTemplate(containers=(Container(requests={MIG + profile: 1}),))
    return Pod(name=name, template=template, annotations={GROUP_NAME: group} if group else {})


def places(nodes: Sequence[Node], *things: Pod | PodGroup) -> dict[str, tuple[str, str]]:
    """Where pods are after some sessions, and their instances."""
    engine = VolcanoPlacement(VolcanoPolicy())
    for thing in (*nodes, *things):
        engine.apply(thing, 0)
    found: dict[str, tuple[str, str]] = {}
    for now in range(1, 4):
        for decision in engine.schedule(now):
            if isinstance(decision, Bind):
                found[decision.pod.partition("/")[2]] = (
                    decision.node,
                    " ".join(f"{one.gpu}:{one.profile}@{one.start}" for one in decision.slices),
                )
                bound = next(one for one in things if isinstance(one, Pod) and one.key == decision.pod)
                seat = {"node": decision.node, "slices": decision.slices, "phase": PodPhase.RUNNING}
                engine.apply(replace(bound, **seat), now)
    return found


def test_a_whole_gpu_leaves_nothing_for_small_instances_though_the_node_offers_seven() -> None:
    assert places([machine()], pod("a", "7g.80gb"), pod("b", "1g.10gb")) == {"a": ("n", "0:7g.80gb@0")}
    assert places([machine(gpus=2)], pod("a", "7g.80gb"), pod("b", "1g.10gb")) == {
        "a": ("n", "0:7g.80gb@0"),
        "b": ("n", "1:1g.10gb@6"),
    }


def test_a_gang_whose_instances_exclude_each_other_does_not_start() -> None:
    group = PodGroup(name="g", min_member=2, phase="Inqueue")
    torn = (pod("a", "4g.40gb", "g"), pod("b", "7g.80gb", "g"), group)
    assert places([machine()], *torn) == {}
    assert set(places([machine("n"), machine("m")], *torn)) == {"a", "b"}


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(sorted(MOST)), min_size=1, max_size=9), st.integers(1, 2))
def test_no_two_instances_lie_on_each_other(profiles: list[str], gpus: int) -> None:
    node = machine(gpus=gpus)
    division = division_of(node.allocatable, node.labels, node.annotations)
    assert division is not None
    engine = VolcanoPlacement(VolcanoPolicy())
    engine.apply(node, 0)
    for number, profile in enumerate(profiles):
        engine.apply(pod(f"p{number}", profile), 0)
    bound = [one for one in engine.schedule(1) if isinstance(one, Bind)]
    assert bound, "the first of them finds an empty node"
    assert all(len(one.slices) == 1 for one in bound)
    for gpu in range(gpus):
        laid = [MigPlacement(one.profile, one.start) for bind in bound for one in bind.slices if one.gpu == gpu]
        assert not division.geometry.objection(laid)
