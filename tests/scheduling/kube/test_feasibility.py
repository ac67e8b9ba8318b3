"""What is remembered of the nodes is what one sees who looks at all of them anew: after any change, in any fork."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpuconsole.model.cluster import Node
from gpuconsole.model.labels import NodeTerm, PreferredTerm, Requirement, Taint
from gpuconsole.model.pod_template import PodTemplate
from gpuconsole.model.resources import CPU
from gpuconsole.scheduling.kube.feasibility import ChangeLog, FeasibilityCache, NodeClasses
from gpuconsole.scheduling.kube.node_cache import NodeCache
from gpuconsole.scheduling.kube.pod_classes import AssignedPod, PodClass, PodClasses, Reservation
from gpuconsole.scheduling.kube.profile import PlacementPolicy
from tests.support.kube_cluster import node, template

NAMES = "abcde"
NEAR = PreferredTerm(10, NodeTerm((Requirement("zone", "In", ("x",)),)))
TEMPLATES: tuple[PodTemplate, ...] = (
    template(1),
    template(2),
    template(requests={CPU: 20_000}),
    template(1, node_selector={"zone": "x"}),
    template(1, preferred=(NEAR,)),
)
SHAPES = [PodClasses().of(one) for one in TEMPLATES]
PRIORITIES = range(4)
Deed = tuple[Any, ...]

names, shapes, priorities = st.sampled_from(NAMES), st.sampled_from(SHAPES), st.sampled_from(PRIORITIES)
deeds = st.one_of(
    st.tuples(st.just("describe"), names, st.sampled_from([0, 1, 3, 4]), st.sampled_from("xy"), st.booleans()),
    st.tuples(st.just("go"), names),
    st.tuples(st.just("seat"), names, shapes, priorities),
    st.tuples(st.just("unseat"), names),
    st.tuples(st.just("leave"), names),
    st.tuples(st.just("reserve"), names, shapes, priorities),
    st.tuples(st.just("unreserve"), names),
    st.tuples(st.just("ask"), shapes, priorities),
    st.tuples(st.just("fork"), st.booleans()),
)
lives = st.lists(deeds, max_size=25)


def board() -> NodeCache:
    """Five machines of which two are in use."""
    made = NodeCache(PlacementPolicy())
    for number, name in enumerate(NAMES):
        made.set_node(name, node(name, number % 4 + 1, labels={"zone": "xy"[number % 2]}))
    for name in "ab":
        made.assign(made.number(name), AssignedPod(f"default/{name}-0", SHAPES[0], 1, 0))
    return made


def play(tried: NodeCache, deed: Deed, serial: int) -> None:
    match deed:
        case ("describe", name, gpus, zone, tainted):
            taints = (Taint("full", "", "PreferNoSchedule"),) if tainted else ()
            tried.set_node(name, node(name, gpus, labels={"zone": zone}, taints=taints))
        case ("go", name):
            tried.set_node(name, None)
        case ("seat", name, shape, priority):
            tried.assign(tried.number(name), AssignedPod(f"default/p{serial}", shape, priority, serial))
        case ("unseat" | "leave" as what, name):
            number = tried.number(name)
            for pod in list(tried.nodes[number].pods)[:1]:
                (tried.unassign if what == "unseat" else tried.mark_terminating)(number, pod)
        case ("reserve", name, shape, priority):
            tried.reserve(tried.number(name), Reservation(f"default/n{serial}", shape, priority))
        case ("unreserve", name):
            number = tried.number(name)
            for held in tried.nodes[number].reserved[:1]:
                tried.unreserve(number, held.pod)
        case ("ask", shape, priority):
            tried.feasibility(shape, priority).preemption.cheapest()


def looked(outlook: FeasibilityCache) -> tuple[object, ...]:
    """All that can be asked of an outlook."""
    reasons = [{text: number for text, number in outlook.reasons(filled).items() if number} for filled in (False, True)]
    each = [(outlook.fits(number), outlook.unresolvable(number)) for number in range(len(NAMES))]
    evicting = outlook.preemption
    return (
        outlook.slots,
        outlook.resolvable,
        outlook.best(),
        evicting.cheapest(),
        evicting.slots_after_preemption(),
        reasons,
        each,
    )


def anew(tried: NodeCache, shape: PodClass, priority: int) -> FeasibilityCache:
    """An outlook that remembers nothing."""
    journal = ChangeLog()
    for number in range(len(tried.nodes)):
        journal.record(number)
    return FeasibilityCache(tried.node_plugins(shape), priority, tried.nodes, journal, NodeClasses()).refresh()


def check(tried: NodeCache) -> None:
    for shape in SHAPES:
        for priority in PRIORITIES:
            assert looked(tried.feasibility(shape, priority)) == looked(anew(tried, shape, priority))


@given(life=lives, tried_out=lives)
@settings(max_examples=150, deadline=None)
def test_an_outlook_is_what_one_sees_who_looks_anew(life: list[Deed], tried_out: list[Deed]) -> None:
    here, others = board(), list[NodeCache]()
    for serial, deed in enumerate(life):
        match deed:
            case ("fork", original):
                check(here)
                twin = here.fork()
                others.append(twin if original else here)
                here = here if original else twin
            case _:
                play(here, deed, serial)
    with here.trial():
        for serial, deed in enumerate(tried_out, start=len(life)):
            if deed[0] not in ("describe", "go", "fork"):
                play(here, deed, serial)
        check(here)
    for each in (here, *others):
        check(each)


def test_a_fork_looks_again_only_at_what_changed() -> None:
    here, seen = board(), list[str]()

    def noted(machine: Node) -> str:
        seen.append(machine.name)
        return ""

    shape = PodClasses().of(TEMPLATES[0])
    lens = replace(here.node_plugins(shape), filters_without_taints=(("noted", noted),))
    journal = ChangeLog()
    for number in range(len(NAMES)):
        journal.record(number)
    outlook = FeasibilityCache(lens, 0, here.nodes, journal, NodeClasses()).refresh()
    assert "".join(seen) == NAMES
    twin = here.fork()
    there = journal.fork()
    twin.set_node("c", node("c", 4))
    there.record(2)
    assert outlook.fork(twin.nodes, there).refresh().slots == outlook.slots + 1
    assert outlook.for_priority(3, here.nodes, journal).refresh().slots == outlook.slots
    assert "".join(seen) == NAMES + "c"
