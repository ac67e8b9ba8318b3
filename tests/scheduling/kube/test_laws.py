"""Laws of placement, whatever arrives, finishes, fails or is evicted, in whatever order."""

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpuconsole.model.clock import MINUTE
from gpuconsole.model.cluster import PodDisruptionBudget
from gpuconsole.model.events import Bind, Unschedulable
from gpuconsole.model.labels import HOSTNAME, LabelSelector
from gpuconsole.model.objects import Object
from gpuconsole.model.pod_template import PodAffinity, PodTemplate, PodTerm, SpreadConstraint
from gpuconsole.model.resources import CPU, GPU, add
from gpuconsole.scheduling.kube.profile import PlacementPolicy, SchedulerProfile, ScoringStrategy
from gpuconsole.scheduling.kube.session import KubePlacement
from tests.support.kube_cluster import Cluster, gang, node, pod, short, template

TEMPLATES = [
    template(requests={GPU: gpus, CPU: cpu}, preemption_policy=policy)
    for gpus in (0, 1, 2, 4)
    for cpu in (1000, 3000)
    for policy in ("", "Never")
]

BY_HOST, BY_ZONE = (PodTerm(key, LabelSelector({"app": "web"})) for key in (HOSTNAME, "zone"))
CHOOSY = [
    template(1, pod_anti_affinity=PodAffinity(required=(BY_HOST,))),
    template(1, pod_affinity=PodAffinity(required=(BY_ZONE,))),
    template(1, pod_affinity=PodAffinity(preferred=((10, BY_HOST),))),
    template(1, spread=(SpreadConstraint("zone", selector=BY_HOST.selector),)),
    template(0, spread=(SpreadConstraint(HOSTNAME, 1, "ScheduleAnyway", BY_HOST.selector),)),
]
PROFILES = [SchedulerProfile(), SchedulerProfile(backoff=None, strategy=ScoringStrategy(type="MostAllocated"))]
BUDGET = PodDisruptionBudget(name="web", selector=BY_HOST.selector, max_unavailable="1")

arrivals = st.builds(
    lambda template, priority: ("pod", template, priority), st.sampled_from(TEMPLATES), st.integers(0, 3)
)
gangs = st.builds(
    lambda size, extra, gpus, priority: ("gang", size, extra, gpus, priority),
    st.integers(1, 5),
    st.integers(0, 1),
    st.integers(1, 2),
    st.integers(0, 3),
)
others = st.sampled_from([("run",), ("bury",), ("fail",), ("cordon",), ("restore",), ("finish",)])
choosy = st.builds(
    lambda wanted, app, priority: ("choosy", wanted, app, priority),
    st.sampled_from(CHOOSY),
    st.sampled_from(["web", "db"]),
    st.integers(0, 3),
)
steps = st.lists(st.one_of(arrivals, gangs, choosy, others), min_size=1, max_size=20)
policies = st.one_of(
    st.fixed_dictionaries({"score": st.sampled_from(["binpack", "spread"]), "gangs": st.booleans()}),
    st.fixed_dictionaries({"profile": st.sampled_from(PROFILES), "gangs": st.booleans()}),
)


class World(Cluster):
    """A cluster of three small nodes that plays steps and checks the laws after each."""

    def __init__(self, **policy: Any) -> None:
        self.machines = {
            name: node(name, gpus, allocatable={CPU: 8000}, labels={HOSTNAME: name, "zone": zone})
            for name, gpus, zone in zip("abc", (1, 3, 4), "xyy", strict=True)
        }
        super().__init__(*self.machines.values(), **policy)
        self.placement.apply(BUDGET, 0)
        self.whole = policy["gangs"]

    def play(self, number: int, step: tuple[Any, ...]) -> None:
        match step:
            case ("pod", wanted, priority):
                self.add(pod(f"p{number}", template=wanted, priority=priority, created=number))
            case ("gang", size, extra, gpus, priority):
                self.add(gang(f"g{number}", size + extra, gpus, size, priority=priority, created=number))
            case ("choosy", wanted, app, priority):
                labels = {"app": app}
                self.add(pod(f"c{number}", template=wanted, labels=labels, priority=priority, created=number))
            case ("bury",):
                self.bury()
            case ("finish",):
                bound = sorted(name for name, each in self.pods.items() if each.node)
                for name in bound[:2]:
                    self.remove(name)
            case ("fail",):
                self._change("b", ready=False)
            case ("cordon",):
                self._change("c", unschedulable=True)
            case ("restore",):
                self._change("b", ready=True)
                self._change("c", unschedulable=False)
        self.check(self.run())

    def _change(self, name: str, **fields: bool) -> None:
        self.machines[name] = replace(self.machines[name], **fields)
        self.placement.apply(self.machines[name], self.time)

    def check(self, decisions: list[Any]) -> None:
        self._no_gpu_has_two_owners()
        self._no_node_holds_more_than_it_has()
        if self.whole:
            self._no_gang_begins_partially(decisions)

    def _no_gpu_has_two_owners(self) -> None:
        owners = Counter((each.node, index) for each in self.pods.values() if each.node for index in each.gpus)
        assert all(count == 1 for count in owners.values())
        free = {(name, index) for name, indices in self.placement.free_gpus().items() for index in indices}
        every = {(name, index) for name, machine in self.machines.items() for index in range(machine.gpus)}
        assert free | set(owners) == every
        assert not free & set(owners)
        assert all(len(each.gpus) == each.template.requests.get(GPU, 0) for each in self.pods.values() if each.node)

    def _no_node_holds_more_than_it_has(self) -> None:
        for name, machine in self.machines.items():
            used = add(*(each.template.requests for each in self.pods.values() if each.node == name))
            assert all(value <= machine.allocatable[resource] for resource, value in used.items())

    def _no_gang_begins_partially(self, decisions: list[Any]) -> None:
        began = {self.pods[short(each.pod)].gang for each in decisions if isinstance(each, Bind)} - {""}
        for name in began:
            members = [each for each in self.pods.values() if each.gang == name]
            assert sum(bool(each.node) and not each.deleted for each in members) >= members[0].gang_size


@given(steps=steps, policy=policies)
@settings(max_examples=150, deadline=None)
def test_gpus_have_one_owner_nodes_are_never_overfull_and_gangs_begin_whole(
    steps: list[tuple[Any, ...]], policy: dict[str, Any]
) -> None:
    world = World(**policy)
    for number, step in enumerate(steps):
        world.play(number, step)


def rebuilt(world: World, policy: dict[str, Any]) -> KubePlacement:
    """A session that is told all facts at once, and what the world's remembers."""
    other = KubePlacement(PlacementPolicy(**policy))
    things: list[Object] = [BUDGET, *world.machines.values(), *world.pods.values()]
    for thing in things:
        other.apply(thing, world.time)
    other.load(world.placement.dump())
    return other


def facts(world: World) -> dict[str, tuple[int, ...]]:
    return dict(world.placement.free_gpus())


@given(steps=steps, policy=policies, cut=st.integers(0, 20))
@settings(max_examples=100, deadline=None)
def test_a_fork_runs_like_the_original_and_never_touches_it(
    steps: list[tuple[Any, ...]], policy: dict[str, Any], cut: int
) -> None:
    world = World(**policy)
    for number, step in enumerate(steps[:cut]):
        world.play(number, step)
    twin = World(**policy)
    twin.machines, twin.pods, twin.time = world.machines.copy(), world.pods.copy(), world.time
    twin.placement, before = world.placement.fork(), (facts(world), len(world.log))
    for number, step in enumerate(steps[cut:], start=cut):
        twin.play(number, step)
    assert (facts(world), len(world.log)) == before
    seen = len(world.log)
    for number, step in enumerate(steps[cut:], start=cut):
        world.play(number, step)
    assert world.log[seen:] == twin.log


@given(steps=steps, policy=policies)
@settings(max_examples=100, deadline=None)
def test_a_session_fed_by_events_decides_like_one_built_from_the_facts(
    steps: list[tuple[Any, ...]], policy: dict[str, Any]
) -> None:
    world = World(**policy)
    for number, step in enumerate(steps):
        world.play(number, step)
    other = rebuilt(world, policy)
    assert other.has_pending == world.placement.has_pending
    assert other.schedule(world.time) == world.placement.schedule(world.time)
    world.placement.apply(node("d", 4), world.time)
    other.apply(node("d", 4), world.time)
    assert other.schedule(world.time) == world.placement.schedule(world.time)


@given(steps=steps, policy=policies)
@settings(max_examples=60, deadline=None)
def test_the_same_input_gives_the_same_decisions(steps: list[tuple[Any, ...]], policy: dict[str, Any]) -> None:
    logs = []
    for _ in range(2):
        world = World(**policy)
        for number, step in enumerate(steps):
            world.play(number, step)
        logs.append(world.log)
    assert logs[0] == logs[1]


@given(steps=steps, policy=policies, wanted=st.sampled_from([*TEMPLATES, *CHOOSY]), app=st.sampled_from(["web", "db"]))
@settings(max_examples=150, deadline=None)
def test_what_is_remembered_decides_as_what_is_looked_up_anew(
    steps: list[tuple[Any, ...]], policy: dict[str, Any], wanted: PodTemplate, app: str
) -> None:
    world = World(**policy)
    for number, step in enumerate(steps):
        world.play(number, step)
    new = pod("new", template=wanted, labels={"app": app}, priority=9, created=1000)
    table = world.placement.scores(new)
    assert table == world.placement.fork().scores(new) == rebuilt(world, policy).scores(new)
    world.add(new)
    decisions = [each for each in world.run() if getattr(each, "pod", "") == new.key]
    if table.chosen:
        assert [(type(each), getattr(each, "node", "")) for each in decisions] == [(Bind, table.chosen)]
    else:
        assert not any(isinstance(each, Bind) for each in decisions)
        assert not any(isinstance(each, Unschedulable) and each.message != table.message for each in decisions)


@given(steps=steps, policy=policies)
@settings(max_examples=60, deadline=None)
def test_nobody_waits_whom_another_look_would_help(steps: list[tuple[Any, ...]], policy: dict[str, Any]) -> None:
    world = World(**policy)
    for number, step in enumerate(steps):
        world.play(number, step)
    for _ in range(20):
        # Pods that preempted others wait until these are gone, although some would fit elsewhere meanwhile.
        world.bury()
        alarm = world.placement.next_timer()
        world.time = max(world.time, alarm or 0)
        world.placement.request_pass()
        if not world.run() and alarm is None:
            break
    # All pods are tried again, as kube-scheduler does with those that were refused five minutes ago.
    world.time += 10 * MINUTE
    for each in list(world.machines.values()):
        world.placement.apply(replace(each, annotations={"seen": "again"}), world.time)
    assert not any(isinstance(each, Bind) for each in world.run())
