"""Which flavor a workload gets, and what it is told when it gets none."""

from typing import NamedTuple

import pytest

from gpuconsole.model.labels import NodeTerm, Requirement, Taint, Toleration
from gpuconsole.model.pod_template import PodSet, PodTemplate
from gpuconsole.model.queues import (
    ClusterQueue,
    Cohort,
    FlavorFungibility,
    FlavorQuotas,
    Fungibility,
    FungibilityPreference,
    Quota,
    ResourceFlavor,
    ResourceGroup,
)
from gpuconsole.scheduling.kueue.config import KueueConfig
from tests.support.kueue_cluster import (
    ANY,
    GPU,
    LOWER,
    World,
    group,
    pods,
    queue,
    victims,
    workload,
)

NEXT, STOP = Fungibility.TRY_NEXT_FLAVOR, Fungibility.MAY_STOP_SEARCH


def flavors_of(world: World, name: str) -> dict[str, str]:
    """resource → flavor of all pod sets of an admitted workload, or nothing."""
    admission = world.workloads[name].admission
    return {} if admission is None else {k: v for p in admission.pod_sets for k, v in p.flavors.items()}


class Match(NamedTuple):
    """Pods against flavors `a` and `b`, in this order."""

    flavors: tuple[ResourceFlavor, ...]
    template: PodTemplate
    want: str
    message: str = ""


SPOT = ResourceFlavor(name="a", node_labels={"type": "spot"}, node_taints=(Taint("spot", "yes"),))
PLAIN = ResourceFlavor(name="b", node_labels={"type": "plain"})
BARE = ResourceFlavor(name="b")

MATCHES: dict[str, Match] = {
    "the first flavor that fits is taken": Match((ResourceFlavor(name="a"), PLAIN), PodTemplate(), "a"),
    "a taint that nobody tolerates keeps pods away": Match((SPOT, PLAIN), PodTemplate(), "b"),
    "a pod may tolerate it": Match((SPOT, PLAIN), PodTemplate(tolerations=(Toleration("spot", "Exists"),)), "a"),
    "so may the flavor": Match(
        (ResourceFlavor(name="a", node_taints=(Taint("x"),), tolerations=(Toleration("x", "Exists"),)), PLAIN),
        PodTemplate(),
        "a",
    ),
    "a taint that only prefers keeps nobody away": Match(
        (ResourceFlavor(name="a", node_taints=(Taint("x", effect="PreferNoSchedule"),)), PLAIN), PodTemplate(), "a"
    ),
    "a node selector chooses by the flavor's labels": Match(
        (ResourceFlavor(name="a", node_labels={"type": "spot"}), PLAIN),
        PodTemplate(node_selector={"type": "plain"}),
        "b",
    ),
    "keys that the flavor does not have do not matter": Match(
        (SPOT, BARE), PodTemplate(node_selector={"zone": "z1"}), "b"
    ),
    "required affinity chooses too": Match(
        (ResourceFlavor(name="a", node_labels={"type": "spot"}), PLAIN),
        PodTemplate(affinity=(NodeTerm((Requirement("type", "NotIn", ("spot",)),)),)),
        "b",
    ),
    "an alternative about other keys makes all hold": Match(
        (ResourceFlavor(name="a", node_labels={"type": "spot"}), PLAIN),
        PodTemplate(
            affinity=(
                NodeTerm((Requirement("type", "In", ("plain",)),)),
                NodeTerm((Requirement("zone", "In", ("z1",)),)),
            )
        ),
        "a",
    ),
    "nothing matches": Match(
        (SPOT, PLAIN),
        PodTemplate(node_selector={"type": "other"}),
        "",
        "couldn't assign flavors to pod set main: flavor b doesn't match node affinity, "
        "untolerated taint {spot yes NoSchedule <nil>} in flavor a",
    ),
    "an empty value leaves two spaces in the taint": Match(
        (ResourceFlavor(name="a", node_taints=(Taint("gpu", effect="NoExecute"),)),),
        PodTemplate(),
        "",
        "couldn't assign flavors to pod set main: untolerated taint {gpu  NoExecute <nil>} in flavor a",
    ),
}


@pytest.mark.parametrize("case", MATCHES.values(), ids=MATCHES.keys())
def test_taints_and_affinity(case: Match) -> None:
    world = World(*case.flavors, queue("q", {flavor.name: 4 for flavor in case.flavors}), flavors=())
    world.run(workload("w", "q", pod_sets=(pods(template=case.template),)))
    assert (flavors_of(world, "w").get(GPU, ""), world.message("w") if not case.want else "") == (
        case.want,
        case.message,
    )


class Choice(NamedTuple):
    """A queue `q` with flavors `a` and `b`, what runs, and the flavor that a newcomer of `gpus` gets."""

    things: tuple[ClusterQueue | Cohort, ...]
    running: dict[str, tuple[str, str, int, int]]
    """name → queue, flavor (by node selector), GPUs, priority"""
    gpus: int
    want: str
    victims: dict[str, str] = {}


def two(
    a: Quota | int, b: Quota | int, when_borrow: Fungibility, when_preempt: Fungibility, preference: str = ""
) -> ClusterQueue:
    chosen = FungibilityPreference(preference) if preference else None
    return queue(
        "q",
        {"a": a, "b": b},
        cohort="c",
        within=LOWER,
        reclaim=ANY,
        fungibility=FlavorFungibility(when_borrow, when_preempt, chosen),
    )


OTHER = queue("other", {"a": 4}, cohort="c")
FULL_A = {"low": ("q", "a", 4, -1)}
BORROW_OR_PREEMPT = {"low": ("q", "b", 4, -1)}

CHOICES: dict[str, Choice] = {
    "borrowing stops the search by default": Choice((two(0, 4, STOP, NEXT), OTHER), {}, 2, "a"),
    "or the next flavor is tried": Choice((two(0, 4, NEXT, NEXT), OTHER), {}, 2, "b"),
    "with nothing better it borrows after all": Choice((two(0, 0, NEXT, NEXT), OTHER), {}, 2, "a"),
    "preemption makes it try the next flavor by default": Choice((two(4, 4, STOP, NEXT),), FULL_A, 4, "b"),
    "or it stops and preempts": Choice((two(4, 4, STOP, STOP),), FULL_A, 4, "a", {"low": "InClusterQueue"}),
    "borrowing is preferred to preemption": Choice((two(0, 4, NEXT, NEXT), OTHER), BORROW_OR_PREEMPT, 4, "a"),
    "unless the queue prefers preemption": Choice(
        (two(0, 4, NEXT, NEXT, "PreemptionOverBorrowing"), OTHER),
        BORROW_OR_PREEMPT,
        4,
        "b",
        {"low": "InClusterQueue"},
    ),
    "a flavor in which nobody can be preempted is the last choice": Choice(
        (two(4, 4, NEXT, NEXT),),
        {"same": ("q", "a", 4, 0), "low": ("q", "b", 4, -1)},
        4,
        "b",
        {"low": "InClusterQueue"},
    ),
}


@pytest.mark.parametrize("case", CHOICES.values(), ids=CHOICES.keys())
def test_fungibility(case: Choice) -> None:
    flavors = (ResourceFlavor(name="a", node_labels={"kind": "a"}), ResourceFlavor(name="b", node_labels={"kind": "b"}))
    world = World(*flavors, *case.things, flavors=())
    for name, (where, flavor, gpus, priority) in case.running.items():
        template = PodTemplate(node_selector={"kind": flavor})
        world.run(workload(name, where, priority=priority, pod_sets=(pods(1, gpus, template=template),)), admitted=True)
    world.apply(workload("new", "q", case.gpus, created=9))
    decisions = world.cycle()
    world.cycle()
    assert (flavors_of(world, "new"), victims(decisions)) == ({GPU: case.want}, case.victims)


def test_the_search_goes_on_where_it_stopped() -> None:
    """Two heads want the same loan; the loser tries its next flavor in the next cycle, even if the first is free."""
    stops = FlavorFungibility(STOP, NEXT)
    world = World(
        queue("x", {"a": 0, "b": 2}, cohort="c", fungibility=stops),
        queue("y", {"a": 0, "b": 2}, cohort="c", fungibility=stops),
        queue("lender", {"a": 2}, cohort="c"),
        flavors=("a", "b"),
    )
    world.apply(workload("x0", "x", 2, created=1), workload("y0", "y", 2, created=2))
    world.cycle()
    assert world.message("y0") == "Workload no longer fits after processing another workload"
    assert flavors_of(world, "x0") == {GPU: "a"}
    world.finish("x0")
    world.cycle()
    assert flavors_of(world, "y0") == {GPU: "b"}


def groups(*pairs: tuple[tuple[str, ...], dict[str, dict[str, int]]]) -> tuple[ResourceGroup, ...]:
    return tuple(
        ResourceGroup(
            resources,
            tuple(FlavorQuotas(f, {r: Quota(n) for r, n in amounts.items()}) for f, amounts in flavors.items()),
        )
        for resources, flavors in pairs
    )


GIB = 2**30

TOLD: dict[str, tuple[tuple[ResourceGroup, ...], tuple[PodSet, ...], str]] = {
    "more than anybody could ever give": (
        (group({"f": 4}),),
        (pods(3, 2),),
        "couldn't assign flavors to pod set main: insufficient quota for nvidia.com/gpu in flavor f, "
        "previously considered podsets requests (0) + current podset request (6) > maximum capacity (4)",
    ),
    "earlier pod sets count": (
        (group({"f": 4}),),
        (pods(1, 2, name="one"), pods(1, 3, name="two")),
        "couldn't assign flavors to pod set two: insufficient quota for nvidia.com/gpu in flavor f, "
        "previously considered podsets requests (2) + current podset request (3) > maximum capacity (4)",
    ),
    "a resource that no group covers": (
        (group({"f": 4}),),
        (pods(1, 1, cpu=1000),),
        "couldn't assign flavors to pod set main: resource cpu unavailable in ClusterQueue",
    ),
    "all resources of a group are judged": (
        groups(((GPU, "cpu", "memory"), {"f": {GPU: 1, "cpu": 1000, "memory": GIB}})),
        (pods(1, 2, cpu=1500, memory=3 * GIB // 2),),
        "couldn't assign flavors to pod set main: insufficient quota for cpu in flavor f, previously considered "
        "podsets requests (0) + current podset request (1500m) > maximum capacity (1), insufficient quota for memory "
        "in flavor f, previously considered podsets requests (0) + current podset request (1536Mi) > maximum capacity "
        "(1Gi), insufficient quota for nvidia.com/gpu in flavor f, previously considered podsets requests (0) + "
        "current podset request (2) > maximum capacity (1)",
    ),
    "a group that fits says nothing": (
        groups((("cpu",), {"f": {"cpu": 8000}}), ((GPU,), {"g": {GPU: 1}})),
        (pods(1, 2, cpu=1000),),
        "couldn't assign flavors to pod set main: insufficient quota for nvidia.com/gpu in flavor g, previously "
        "considered podsets requests (0) + current podset request (2) > maximum capacity (1)",
    ),
    "bytes that are no multiple of 1Ki are written in decimals": (
        groups((("memory",), {"f": {"memory": GIB}})),
        (pods(1, 0, memory=1_500_000_000),),
        "couldn't assign flavors to pod set main: insufficient quota for memory in flavor f, previously considered "
        "podsets requests (0) + current podset request (1500M) > maximum capacity (1Gi)",
    ),
    "the number of pods is a resource": (
        groups(((GPU, "pods"), {"f": {GPU: 8, "pods": 2}})),
        (pods(3, 1),),
        "couldn't assign flavors to pod set main: insufficient quota for pods in flavor f, previously considered "
        "podsets requests (0) + current podset request (3) > maximum capacity (2)",
    ),
}


@pytest.mark.parametrize(("resource_groups", "pod_sets", "want"), TOLD.values(), ids=TOLD.keys())
def test_what_a_workload_is_told(
    resource_groups: tuple[ResourceGroup, ...], pod_sets: tuple[PodSet, ...], want: str
) -> None:
    world = World(queue("q", groups=resource_groups), flavors=("f", "g"))
    world.run(workload("w", "q", pod_sets=pod_sets))
    assert world.message("w") == want


def test_what_is_missing_now_is_told_by_amount() -> None:
    world = World(queue("q", 4))
    world.run(workload("first", "q", 3), workload("second", "q", 3, created=1))
    assert world.message("second") == (
        "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor f, "
        "2 more needed"
    )


def test_nothing_of_an_undeclared_resource_is_fine() -> None:
    world = World(queue("q", 4)).run(workload("w", "q", pod_sets=(pods(1, 1, cpu=0),)))
    assert flavors_of(world, "w") == {GPU: "f"}


def test_undeclared_resources_can_be_ignored() -> None:
    world = World(queue("q", 4), config=KueueConfig(ignore_undeclared=True))
    world.run(workload("w", "q", pod_sets=(pods(1, 1, cpu=500),)))
    assert flavors_of(world, "w") == {GPU: "f"}


def test_resource_groups_get_their_flavors_apart() -> None:
    resource_groups = groups((("cpu",), {"x": {"cpu": 8000}}), ((GPU,), {"g": {GPU: 8}}))
    world = World(queue("q", groups=resource_groups), flavors=("g", "x"))
    world.run(workload("w", "q", pod_sets=(pods(1, 2, cpu=1000),)))
    assert flavors_of(world, "w") == {"cpu": "x", GPU: "g"}


def test_victims_are_looked_for_without_regard_to_the_number_of_pods() -> None:
    """Kueue's search leaves the `pods` quota out; what it finds is then found not to be enough."""
    resource_groups = groups(((GPU, "cpu", "pods"), {"f": {GPU: 4, "cpu": 8000, "pods": 4}}))
    world = World(queue("q", groups=resource_groups, within=LOWER))
    world.run(
        workload("wide", "q", 3, priority=-1),
        workload("many", "q", priority=-1, created=1, pod_sets=(pods(3, 0, cpu=1000),)),
        admitted=True,
    )
    world.apply(workload("new", "q", priority=9, pod_sets=(pods(2, 1),)))
    assert victims(world.cycle()) == {}
    assert world.message("new") == "Workload no longer fits after processing another workload"
