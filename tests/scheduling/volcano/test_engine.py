"""Volcano as an engine of placement: sessions over objects, GPUs with one owner, forks, memory."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gpuconsole.model.clock import SECOND
from gpuconsole.model.cluster import Node, Pod, PodPhase, PriorityClass
from gpuconsole.model.events import Bind, EvictPod, Nominate, PlacementDecision, SetPhase, Unschedulable
from gpuconsole.model.pod_template import Container, PodTemplate
from gpuconsole.model.resources import CPU, GPU, PODS
from gpuconsole.model.volcano import PodGroup, VolcanoQueue
from gpuconsole.scheduling.volcano.config import HELM_CONF, VolcanoPolicy
from gpuconsole.scheduling.volcano.engine import VolcanoPlacement

PREEMPTING = VolcanoPolicy(conf=HELM_CONF.replace("allocate,", "allocate, preempt,"))


def machine(name: str, gpus: int) -> Node:
    amounts = {CPU: 64_000, GPU: gpus, PODS: 50}
    return Node(name=name, allocatable=amounts, capacity=amounts)


def pod(name: str, gpus: int = 1, *, gang: str = "", size: int = 0, priority: str = "") -> Pod:
    template = PodTemplate(containers=(Container(requests={GPU: gpus}),), priority_class=priority)
    return Pod(name=name, template=template, gang=gang, gang_size=size)


class World:
    """Carries out what the engine decides, as the simulation does."""

    def __init__(self, *things: Node | Pod | PriorityClass | PodGroup, policy: VolcanoPolicy | None = None) -> None:
        self.engine = VolcanoPlacement(policy or VolcanoPolicy())
        self.pods: dict[str, Pod] = {}
        self.now = 0
        self.add(*things)

    def add(self, *things: Node | Pod | PriorityClass | PodGroup | VolcanoQueue) -> None:
        for thing in things:
            if isinstance(thing, Pod):
                self.pods[thing.key] = thing
            self.engine.apply(thing, self.now)

    def run(self) -> list[PlacementDecision]:
        """Sessions until nothing changes."""
        said: list[PlacementDecision] = []
        for _ in range(10):
            if not self.engine.has_pending:
                return said
            self.now += SECOND
            decisions = self.engine.schedule(self.now)
            said += decisions
            for decision in decisions:
                self._carry_out(decision)
        raise AssertionError(f"it never comes to rest: {said}")

    def _carry_out(self, decision: PlacementDecision) -> None:
        match decision:
            case Bind(pod=key, node=node, gpus=gpus):
                self.add(replace(self.pods[key], node=node, gpus=gpus, phase=PodPhase.RUNNING, bound=self.now))
            case EvictPod(key):
                self.add(replace(self.pods[key], deleted=self.now))
            case Nominate(key, node):
                self.add(replace(self.pods[key], nominated_node=node))
            case Unschedulable(key, message):
                self.add(replace(self.pods[key], message=message))

    def finish(self, key: str) -> None:
        del self.pods[key]
        self.engine.delete("pods", key, self.now)

    def places(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        return {one.name: (one.node, self.engine.gpus_of(one.key)) for one in self.pods.values() if one.node}


def test_pods_without_a_podgroup_are_placed_one_by_one_on_the_lowest_free_gpus() -> None:
    world = World(machine("n1", 4), pod("a", 2), pod("b", 1))
    world.run()
    assert world.places() == {"a": ("n1", (0, 1)), "b": ("n1", (2,))}
    assert world.engine.free_gpus() == {"n1": (3,)}


def test_a_gang_waits_whole_and_is_told_why() -> None:
    gang = [pod(f"g-{number}", gang="Job/g", size=3) for number in range(3)]
    world = World(machine("n1", 2), *gang)
    said = world.run()
    assert world.places() == {}
    assert {one.pod for one in said if isinstance(one, Unschedulable)} == {one.key for one in gang}
    messages = {one.pod: one.message for one in said if isinstance(one, Unschedulable)}
    assert messages["default/g-0"] == "Pod default/g-0 can possibly be assigned to n1, once minAvailable is satisfied"
    # The queue deserves no more than there is: the third is not even looked at.
    counts = "pod group is not ready, 3 Pending, 3 minAvailable; Pending: 1 Unschedulable, 2 Schedulable"
    assert messages["default/g-2"] == counts
    world.add(machine("n2", 1))
    world.run()
    assert set(world.places()) == {"g-0", "g-1", "g-2"}


def preemption(policy: VolcanoPolicy) -> World:
    classes = [PriorityClass(name="low", value=1), PriorityClass(name="high", value=10)]
    world = World(machine("n1", 2), *classes, pod("a", priority="low"), pod("b", priority="low"), policy=policy)
    world.run()
    world.add(pod("urgent", gang="Job/urgent", size=1, priority="high"))
    return world


def test_by_default_nobody_is_ever_preempted() -> None:
    assert [one for one in preemption(VolcanoPolicy()).run() if isinstance(one, EvictPod)] == []


def test_a_victim_leaves_once_and_its_place_is_kept_until_it_is_gone() -> None:
    world = preemption(PREEMPTING)
    said = world.run()
    evictions = [one for one in said if isinstance(one, EvictPod)]
    text = "Pod is evicted, because of preempt"
    assert evictions == [EvictPod("default/b", "default/urgent", "n1", text, "preempt")]
    assert Nominate("default/urgent", "n1") in said
    assert world.run() == []
    world.finish("default/b")
    assert Bind("default/urgent", "n1", (1,)) in world.run()


def test_a_podgroup_is_let_in_before_its_pods_are_there() -> None:
    group = PodGroup(name="g", min_member=2, queue="team", min_resources={GPU: 2}, phase="Pending")
    world = World(machine("n1", 2), group)
    assert world.run() == []
    world.add(VolcanoQueue(name="team"))
    assert world.run() == [SetPhase("default/g", "Inqueue")]


def test_a_fork_goes_on_alone() -> None:
    world = preemption(PREEMPTING)
    twin = world.engine.fork()
    first = twin.schedule(world.now)
    assert first == world.engine.fork().schedule(world.now)
    assert world.engine.has_pending
    assert [one for one in world.run() if isinstance(one, EvictPod)] == [
        one for one in first if isinstance(one, EvictPod)
    ]


def test_memory_and_objects_make_the_same_engine_again() -> None:
    world = preemption(PREEMPTING)
    world.run()
    again = VolcanoPlacement(PREEMPTING)
    for thing in (machine("n1", 2), PriorityClass(name="low", value=1), PriorityClass(name="high", value=10)):
        again.apply(thing, world.now)
    for one in world.pods.values():
        again.apply(one, world.now)
    again.load(world.engine.dump())
    assert again.dump() == world.engine.dump()
    assert not again.has_pending
    world.finish("default/b")
    again.delete("pods", "default/b", world.now)
    assert again.schedule(world.now) == world.engine.schedule(world.now)


@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=12),
    gangs=st.lists(st.integers(2, 5), max_size=3),
    gone=st.sets(st.integers(0, 11), max_size=6),
)
def test_no_gpu_has_two_owners_and_no_gang_runs_torn(sizes: list[int], gangs: list[int], gone: set[int]) -> None:
    singles = [pod(f"s-{number}", gpus) for number, gpus in enumerate(sizes)]
    groups = [pod(f"g{g}-{n}", gang=f"Job/g{g}", size=size) for g, size in enumerate(gangs) for n in range(size)]
    world = World(machine("n1", 4), machine("n2", 8), *singles, *groups)
    world.run()
    for number in gone:
        if f"default/s-{number}" in world.pods:
            world.finish(f"default/s-{number}")
    world.run()
    owned = [(node, gpu) for node, gpus in world.places().values() for gpu in gpus]
    assert len(owned) == len(set(owned))
    free = {(node, gpu) for node, gpus in world.engine.free_gpus().items() for gpu in gpus}
    assert free.isdisjoint(owned)
    assert len(free) + len(owned) == 12
    for number, size in enumerate(gangs):
        assert sum(name.startswith(f"g{number}-") for name in world.places()) in (0, size)


def test_phases_follow_without_anybody_waiting_so_that_nothing_is_promised_twice() -> None:
    world = World(machine("n1", 8), PodGroup(name="g", min_member=1, min_resources={GPU: 1}, phase="Inqueue"))
    world.add(replace(pod("g-0"), annotations={"scheduling.k8s.io/group-name": "g"}))
    assert [one for one in world.run() if isinstance(one, SetPhase)] == [SetPhase("default/g", "Running")]
