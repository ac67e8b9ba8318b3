"""MIG instances of pods: which they get, who waits, and that no slice ever has two owners."""

from collections import Counter, defaultdict

from hypothesis import given, settings
from hypothesis import strategies as st

from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.gpus.mig import MigInstance, MigPlacement
from gpuconsole.model.gpus.mig_reconfiguration import DYNAMIC, LAYOUT, division_of
from gpuconsole.model.pod_template import PodTemplate
from gpuconsole.model.resources import CPU
from gpuconsole.scheduling.kube.pod_classes import AssignedPod, NodeState, PodClasses, with_node, with_pod
from tests.support.kube_cluster import Cluster, gang, node, pod, pods, template

MIG = "nvidia.com/mig-"
ONE, TWO, THREE, FOUR, SEVEN = (MIG + name for name in ("1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"))
LABELS = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}


def asks(*resources: str) -> PodTemplate:
    return template(requests={**Counter(resources), CPU: 100})


def fixed(offered: dict[str, int], layout: str = "") -> Node:
    return node("n", 0, allocatable=offered, labels=LABELS, annotations={LAYOUT: layout})


def dynamic(gpus: int) -> Node:
    counts = {ONE: 7 * gpus, TWO: 3 * gpus, THREE: 2 * gpus, FOUR: gpus, SEVEN: gpus}
    return node("n", 0, allocatable=counts, labels=LABELS, annotations={DYNAMIC: str(gpus)})


def owned(cluster: Cluster) -> dict[str, list[str]]:
    return {
        name: [f"{one.gpu}/{one.profile}@{one.start}" for one in each.slices]
        for name, each in sorted(cluster.pods.items())
        if each.node
    }


def test_seven_pods_share_a_gpu_and_the_eighth_waits() -> None:
    cluster = Cluster(fixed({ONE: 7})).add(pods("p", 8, template=asks(ONE))).settle()
    assert owned(cluster) == {f"p-{n}": [f"0/1g.10gb@{n}"] for n in range(7)}
    assert cluster.told("p-7") == (
        "0/1 nodes are available: 1 Insufficient nvidia.com/mig-1g.10gb. "
        "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
    )


def test_a_slice_that_is_free_again_is_the_next_ones() -> None:
    cluster = Cluster(fixed({ONE: 7})).add(pods("p", 8, template=asks(ONE))).settle()
    assert owned(cluster.remove("p-3").settle())["p-7"] == ["0/1g.10gb@3"]


def test_a_pod_may_own_instances_of_several_profiles() -> None:
    layout = "1g.10gb@0 3g.40gb@4"
    cluster = Cluster(fixed({ONE: 1, THREE: 1}, layout)).add(pod("p", template=asks(ONE, THREE)))
    assert owned(cluster.settle()) == {"p": ["0/1g.10gb@0", "0/3g.40gb@4"]}


def test_instances_are_made_where_most_mixes_stay_reachable() -> None:
    cluster = Cluster(dynamic(2)).add(pod("a", template=asks(THREE))).settle()
    assert owned(cluster) == {"a": ["0/3g.40gb@4"]}
    cluster.add([pod("b", template=asks(FOUR), created=1), pod("c", template=asks(ONE), created=2)]).settle()
    assert owned(cluster) == {"a": ["0/3g.40gb@4"], "b": ["0/4g.40gb@0"], "c": ["1/1g.10gb@6"]}


def test_a_gpu_that_is_divided_already_is_divided_on_before_an_idle_one() -> None:
    cluster = Cluster(dynamic(2)).add(pods("p", 7, template=asks(ONE))).settle()
    assert {one.gpu for each in cluster.pods.values() for one in each.slices} == {0}
    assert owned(cluster.add(pod("q", template=asks(SEVEN))).settle())["q"] == ["1/7g.80gb@0"]


def test_what_cannot_be_made_beside_the_instances_in_use_waits() -> None:
    cluster = Cluster(dynamic(1)).add(pods("p", 2, template=asks(THREE))).settle()
    cluster.add(pod("q", template=asks(ONE), created=9)).settle()
    assert cluster.waiting() == ["q"]
    assert cluster.told("q").startswith("0/1 nodes are available: 1 Insufficient nvidia.com/mig-1g.10gb.")
    assert owned(cluster.remove("p-0").settle())["q"]


def test_only_those_leave_whose_slices_a_more_important_pod_needs() -> None:
    cluster = (
        Cluster(dynamic(1)).add(pod("a", template=asks(FOUR))).add(pod("b", template=asks(TWO), created=1)).settle()
    )
    assert owned(cluster) == {"a": ["0/4g.40gb@0"], "b": ["0/2g.20gb@4"]}
    cluster.add(pod("c", template=asks(THREE), priority=9, created=2)).settle()
    assert cluster.evicted() == ["b"]
    assert owned(cluster) == {"a": ["0/4g.40gb@0"], "c": ["0/3g.40gb@4"]}
    cluster.add(pod("d", template=asks(SEVEN), priority=5, created=3)).settle()
    assert (cluster.evicted(), cluster.waiting()) == (["b"], ["d"])


def test_a_gang_takes_the_slices_of_less_important_pods_together() -> None:
    cluster = Cluster(dynamic(1)).add(pods("p", 7, template=asks(ONE))).settle()
    cluster.add(gang("g", 2, template=asks(THREE), priority=1, created=9)).settle()
    assert cluster.where() == {"n": ["g-0", "g-1"]}


def test_a_pod_keeps_the_instances_that_it_names() -> None:
    here = pod("p", template=asks(ONE), node="n", slices=(MigInstance(0, "1g.10gb", 5),))
    cluster = Cluster(fixed({ONE: 7})).add(here).add(pods("q", 6, template=asks(ONE), created=1)).settle()
    assert Counter(one for each in owned(cluster).values() for one in each) == {f"0/1g.10gb@{n}": 1 for n in range(7)}
    assert owned(cluster)["p"] == ["0/1g.10gb@5"]


def test_a_node_that_is_divided_anew_gives_its_pods_what_there_is() -> None:
    before, after = fixed({ONE: 1}, "1g.10gb@0"), fixed({ONE: 1}, "1g.10gb@3")
    seat = AssignedPod("default/p", PodClasses().of(asks(ONE)), 0, 0)
    state = with_pod(with_node(NodeState("n"), before), seat)
    assert state.taken_instances == {MigInstance(0, "1g.10gb", 0)}
    assert with_node(state, after).taken_instances == {MigInstance(0, "1g.10gb", 3)}
    assert with_node(state, node("n", 8)).taken_instances == set()


ASKED = st.lists(st.sampled_from([ONE, TWO, THREE, FOUR, SEVEN]), min_size=1, max_size=2)
STEPS = st.lists(st.tuples(ASKED, st.integers(0, 3), st.booleans()), min_size=1, max_size=25)


@settings(max_examples=60, deadline=None)
@given(STEPS, st.booleans())
def test_no_slice_has_two_owners_and_every_pod_has_what_it_asked_for(
    steps: list[tuple[list[str], int, bool]], moving: bool
) -> None:
    machine = dynamic(2) if moving else fixed({ONE: 5, TWO: 2, THREE: 1})
    cluster = Cluster(machine)
    for number, (resources, priority, ends) in enumerate(steps):
        cluster.add(pod(f"p{number}", template=asks(*resources), priority=priority, created=number)).settle()
        placed = sorted(name for name, each in cluster.pods.items() if each.node)
        if ends and placed:
            cluster.remove(placed[0]).settle()
        check([each for each in cluster.pods.values() if each.node], machine)


def check(placed: list[Pod], machine: Node) -> None:
    division = division_of(machine.allocatable, machine.labels, machine.annotations)
    assert division is not None
    by_gpu: dict[int, list[MigPlacement]] = defaultdict(list)
    for each in placed:
        asked = Counter({name: n for name, n in each.template.requests.items() if name.startswith(MIG)})
        assert Counter(MIG + one.profile for one in each.slices) == asked
        for one in each.slices:
            by_gpu[one.gpu].append(MigPlacement(one.profile, one.start))
    for placements in by_gpu.values():
        assert division.geometry.objection(placements) == ""
