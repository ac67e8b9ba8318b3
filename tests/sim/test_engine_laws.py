"""Laws that hold whoever admits, places, provides nodes and shares GPUs: owners, room, gangs, books, forks, saves."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpuconsole.insight.cost.rates import pools
from gpuconsole.insight.preemption.history import lost_by
from gpuconsole.model.autoscaling import NodeGroup
from gpuconsole.model.clock import HOUR, SECOND
from gpuconsole.model.cluster import Node, Pod, PodPhase
from gpuconsole.model.device_requests import amount_of_gpus
from gpuconsole.model.events import Applied, Event, HistoryEvent, HistoryEventKind
from gpuconsole.model.gpus.mig_reconfiguration import division_of
from gpuconsole.model.gpus.sharing import device, replicas
from gpuconsole.model.job import BatchRules, JobPhase
from gpuconsole.model.jobs.batch import count_pieces
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.sim.controllers.work import pod_run_time
from gpuconsole.sim.engine import Simulation
from tests.support.engine_clusters import (
    EVERY,
    EVERY_WITH_LATENCIES,
    GPU,
    MAKES,
    Asked,
    Life,
    Make,
    fresh,
    live,
    lives,
    send,
)
from tests.support.random_simulations import contents

law = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
DATA = st.data()


def drawn(data: st.DataObject, make: Make, *, forced: bool = True) -> Life:
    return data.draw(lives(make, forced=forced))


def on_nodes(snapshot: Snapshot) -> Iterable[tuple[Node, list[Pod]]]:
    """Every node with the pods that hold a place on it."""
    there: dict[str, list[Pod]] = defaultdict(list)
    for pod in snapshot.pods.all():
        if pod.node and not pod.done:
            there[pod.node].append(pod)
    return [(node, there[node.name]) for node in snapshot.nodes.all()]


def check_owners(snapshot: Snapshot) -> None:
    """No GPU has two owners, unless it is offered several times; no two MIG instances lie on each other."""
    for node, pods in on_nodes(snapshot):
        whole = Counter(index for pod in pods for index in pod.gpus)
        assert not whole or (max(whole.values()) == 1 and max(whole) < node.gpus), node.name
        behind = Counter(device(index, node.gpus, node.labels) for pod in pods for index in pod.gpus)
        assert max(behind.values(), default=0) <= replicas(node.labels), node.name
        division = division_of(node.allocatable, node.labels, node.annotations)
        spans = Counter(
            (one.gpu, at)
            for pod in pods
            for one in pod.slices
            if division is not None
            for at in range(one.start, one.start + division.geometry.by_name[one.profile].span)
        )
        assert max(spans.values(), default=0) <= 1, node.name
        for pod in pods:
            wanted = sum(n for name, n in pod.template.requests.items() if name.startswith("nvidia.com/mig-"))
            assert (len(pod.gpus), len(pod.slices)) == (pod.template.requests.get(GPU, 0), wanted), pod.key


def check_room(snapshot: Snapshot) -> None:
    """What is allocated on a node is never more than it has."""
    for node, pods in on_nodes(snapshot):
        asked: Counter[str] = Counter({"pods": len(pods)})
        for pod in pods:
            asked.update(pod.template.requests)
        assert all(asked[name] <= node.allocatable.get(name, 0) for name in asked), (node.name, asked)


def check_gangs(snapshot: Snapshot, events: Sequence[Event]) -> None:
    """Whenever a pod of a gang gets its node, as many as the gang needs have theirs or are done."""
    bound, evicted = _bound_and_evicted_later(events)
    groups = {group.name: group.min_member for group in snapshot.pod_groups.all()}
    gangs: dict[tuple[str, int], list[Pod]] = defaultdict(list)
    for pod in snapshot.pods.all():
        if pod.gang:
            gangs[pod.gang, pod.gang_size].append(pod)
        group = pod.annotations.get("scheduling.k8s.io/group-name", "")
        if group in groups:
            gangs[group, groups[group]].append(pod)
    for (gang, least), pods in gangs.items():
        if any(pod.key in bound and not pod.done and not pod.deleted for pod in pods):
            there = sum(bool(pod.node) and (not pod.deleted or pod.key in evicted) for pod in pods)
            assert there >= least, (gang, there, least)


def _bound_and_evicted_later(events: Sequence[Event]) -> tuple[set[str], set[str]]:
    """The pods that got a node, and those that were told to go after the last one of their gang got its node.

    A scheduler may bind a gang and evict one of its pods in one moment: the gang was whole when it was bound.
    """
    bound: set[str] = set()
    told: set[str] = set()
    evicted: dict[str, set[str]] = defaultdict(set)
    gangs: dict[str, str] = {}
    for event in events:
        match event:
            case Applied(object=Pod() as pod):
                gangs[pod.key] = pod.gang
                if pod.deleted == event.time and pod.key not in told:
                    told.add(pod.key)
                    evicted[pod.gang].add(pod.key)
            case HistoryEvent(what=HistoryEventKind.POD_BOUND, pod=key):
                bound.add(key)
                evicted[gangs[key]].clear()
            case _:
                pass
    return bound, {key for keys in evicted.values() for key in keys}


def check(simulation: Simulation) -> None:
    """All laws of a moment, for what happened since the last check."""
    events = simulation.drain()
    snapshot = simulation.snapshot()
    check_owners(snapshot)
    check_room(snapshot)
    check_gangs(snapshot, events)


KINDS = [
    ("Job", "red", "low"),
    ("PyTorchJob", "red", "low"),
    ("VolcanoJob", "red", "middle"),
    ("PyTorchJob", "blue", "high"),
    ("VolcanoJob", "blue", "high"),
    ("Job", "blue", "low"),
]
BURST = [
    Asked(
        name=f"{kind[0].lower()}{n}",
        team=team,
        kind=kind,
        gpus=1 + n % 2,
        pods=3,
        minutes=20,
        checkpoint=4 * (n % 2),
        priority=priority,
        least=3,
    )
    for n, (kind, team, priority) in enumerate(KINDS)
]


@pytest.mark.parametrize("make", [*EVERY, *(make for make in EVERY_WITH_LATENCIES if make.sharing == "whole")], ids=str)
def test_engines_of_every_make_keep_the_laws_at_every_moment(make: Make) -> None:
    """Six jobs, one every forty seconds, and nothing else."""
    simulation = fresh(make)
    ran = False
    for job in BURST:
        send(make, job)(simulation)
        end = simulation.now + 40 * SECOND
        while simulation.now < end:
            check(simulation)
            simulation.advance(min(end, simulation.next_time or end))
    end = simulation.now + 3 * HOUR
    while simulation.now < end:
        check(simulation)
        ran = ran or any(pod.phase is PodPhase.RUNNING for pod in simulation.snapshot().pods.all())
        simulation.advance(min(end, simulation.next_time or end))
    assert ran


def test_a_gang_of_which_volcano_reclaims_a_pod_in_the_moment_it_started_was_whole() -> None:
    """Where gang spares everybody, the next tier decides alone, and proportion lets go of a pod (Volcano's tiers)."""
    make = Make(admission="none", placement="Volcano", capacity="karpenter", sharing="whole")
    simulation = fresh(make)
    gang = Asked(
        name="a", team="red", kind="PyTorchJob", gpus=1, pods=2, minutes=3, checkpoint=0, priority="low", least=1
    )
    send(make, gang)(simulation)
    send(make, replace(gang, kind="VolcanoJob", pods=1))(simulation)
    end = simulation.now + 90 * SECOND
    while simulation.now < end:
        simulation.advance(min(end, simulation.next_time or end))
        check(simulation)
    assert simulation.snapshot().jobs["VolcanoJob/red/a"].phase is JobPhase.RUNNING


@law
@given(MAKES, DATA)
def test_the_laws_hold_whatever_happens(make: Make, data: st.DataObject) -> None:
    simulation = fresh(make)
    for span, deed in drawn(data, make):
        end = simulation.now + span
        while simulation.now < end:
            simulation.advance(min(end, simulation.next_time or end))
            check(simulation)
        deed(simulation)
        check(simulation)


@law
@given(MAKES, DATA)
def test_a_fork_runs_like_the_original_and_never_touches_it(make: Make, data: st.DataObject) -> None:
    original = fresh(make)
    live(original, drawn(data, make))
    later, fork = drawn(data, make), original.fork()
    still, waiting = contents(original.snapshot()), original.fork().drain()
    live(fork, later)
    fork.advance(fork.now + HOUR)
    assert contents(original.snapshot()) == still
    assert original.fork().drain() == waiting
    live(original, later)
    original.advance(original.now + HOUR)
    assert contents(original.snapshot()) == contents(fork.snapshot())
    assert original.drain() == fork.drain()


@law
@given(MAKES, DATA)
def test_a_saved_simulation_goes_on_as_the_original_does(make: Make, data: st.DataObject) -> None:
    original = fresh(make)
    live(original, drawn(data, make))
    loaded = Simulation.load(original.save())
    assert contents(loaded.snapshot()) == contents(original.snapshot())
    later = drawn(data, make)
    for simulation in (original, loaded):
        live(simulation, later)
        simulation.advance(simulation.now + HOUR)
    assert loaded.drain() == original.drain()


@law
@given(MAKES, DATA)
def test_the_same_seed_gives_the_same_history_however_time_is_cut(make: Make, data: st.DataObject) -> None:
    life = drawn(data, make)
    whole, cut = fresh(make), fresh(make)
    for simulation in (whole, cut):
        live(simulation, life)
    end = whole.now + HOUR
    whole.advance(end)
    while cut.now < end:
        cut.advance(min(end, cut.now + 47 * SECOND))
    assert cut.drain() == whole.drain()


@law
@given(MAKES, DATA)
def test_money_and_lost_work_add_up(make: Make, data: st.DataObject) -> None:
    """Pools cost what their machines cost while they are there; jobs run for their work and for what they lost."""
    simulation = fresh(make)
    live(simulation, drawn(data, make, forced=False))
    simulation.advance(simulation.now + 3 * HOUR)
    snapshot, events = simulation.snapshot(), simulation.drain()
    assert sum(row.spent for row in pools(snapshot)) == pytest.approx(_paid(events, simulation.now))
    books = Books(events)
    for job in snapshot.jobs.all():
        # A job of Volcano may run with fewer pods than it asks for: what they do is not the whole of it.
        if job.phase is JobPhase.SUCCEEDED and isinstance(job.rules, BatchRules) and job.solo and job.duration:
            once = pod_run_time(job.rules, job.duration, job.pod_sets[0].count) / SECOND
            done = count_pieces(job.rules, job.pod_sets[0].count) * once * books.gpus[job.key, job.pod_sets[0].name]
            assert books.worked[job.key] == pytest.approx(done + books.lost[job.key]), job.key
        elif job.phase is JobPhase.SUCCEEDED and job.duration is not None and job.volcano is None:
            gpus = sum(part.count * books.gpus[job.key, part.name] for part in job.pod_sets)
            lost = books.lost[job.key]
            assert books.ran[job.key] * gpus == pytest.approx(job.duration / SECOND * gpus + lost), job.key
    lines = [event for event in events if isinstance(event, HistoryEvent)]
    assert sum(lost.gpu_hours for lost in lost_by(lines).values()) == pytest.approx(sum(books.lost.values()) / 3600)


def _paid(events: Iterable[Event], now: int) -> float:
    """USD by the comings and goings of machines alone."""
    present: dict[str, dict[str, tuple[float, int]]] = defaultdict(dict)
    total = 0.0
    for event in events:
        if isinstance(event, Applied) and isinstance(event.object, NodeGroup):
            name, there = event.object.name, {one.name: (one.price, one.launched) for one in event.object.instances}
            for gone in present[name].keys() - there.keys():
                price, launched = present[name][gone]
                total += price * (event.time - launched) / HOUR
            present[name] = there
    return total + sum(p * (now - launched) / HOUR for group in present.values() for p, launched in group.values())


class Books:
    """Seconds that each job ran and GPU-seconds that it lost, by history alone."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.ran: dict[str, float] = defaultdict(float)
        self.lost: dict[str, float] = defaultdict(float)
        self.worked: dict[str, float] = defaultdict(float)
        """GPU-seconds of its pods, from their start to their end or to the moment when they were told to go."""
        self.gpus: dict[tuple[str, str], float] = defaultdict(float)
        """Job and pod set → GPUs of a pod that had a node; a MIG instance or a replica is a part of one."""
        self._nodes: dict[str, Node] = {}
        self._started: dict[str, int] = {}
        self._at_work: dict[str, Pod] = {}
        self._job: dict[str, str] = {}
        for event in events:
            match event:
                case Applied(object=Node() as node):
                    self._nodes[node.name] = node
                case Applied(object=Pod() as pod) if pod.job:
                    self._job[pod.key] = pod.job
                    if pod.workload:
                        self._job[pod.workload] = pod.job
                    self._pod(pod, event.time)
                case HistoryEvent():
                    self._line(event)
                case _:
                    pass

    def _pod(self, pod: Pod, now: int) -> None:
        if pod.started and not pod.done and not pod.deleted:
            self._at_work[pod.key] = pod
            self.gpus[pod.job, pod.pod_set] = amount_of_gpus(pod, self._nodes.get(pod.node), 0)
        elif (before := self._at_work.pop(pod.key, None)) is not None:
            gpus = amount_of_gpus(before, self._nodes.get(before.node), 0)
            self.worked[pod.job] += gpus * (now - before.started) / SECOND

    def _line(self, line: HistoryEvent) -> None:
        key = self._job.get(line.workload) or self._job.get(line.pod) or line.workload
        if line.what is HistoryEventKind.STARTED:
            self._started[key] = line.time
        elif line.what in (
            HistoryEventKind.EVICTED,
            HistoryEventKind.POD_EVICTED,
            HistoryEventKind.POD_FAILED,
            HistoryEventKind.FINISHED,
            HistoryEventKind.FAILED,
        ):
            if key in self._started:
                self.ran[key] += (line.time - self._started.pop(key)) / SECOND
            self.lost[key] += line.lost_gpu_seconds
