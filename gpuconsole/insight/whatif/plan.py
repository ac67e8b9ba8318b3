"""Capacity plan: the cheapest change with which requested workloads run within a target wait, simulated in forks.

The kinds of changes are policy, priority, quota and nodes, each scaled by a number. As a rule, more of a change does
not make the requested workloads wait longer. So the smallest sufficient amount is found by binary search, and it is
simulated before it is proposed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from gpuconsole.insight.cost.rates import node_price
from gpuconsole.insight.index.demand import (
    CLAIMED,
    counted_as,
    pod_accelerators,
    quota_accelerators,
    quota_unit,
    template_units,
    wanted_units,
)
from gpuconsole.insight.index.gpu_map import dra_devices
from gpuconsole.insight.pending.pending import explain
from gpuconsole.insight.pending.reasons import PendingReason
from gpuconsole.insight.whatif.futures import Future, more_evictions, subjects_of
from gpuconsole.model.clock import HOUR, SECOND, Span, Time
from gpuconsole.model.cluster import Node
from gpuconsole.model.commands import AddNodes, Command, Reconfigure, SetPreemption, SetPriority, SetQuota
from gpuconsole.model.cooperative import Progress, Steps, complete_answer, report_steps
from gpuconsole.model.devices import DRA_DEVICE, counted_units
from gpuconsole.model.events import HistoryEventKind
from gpuconsole.model.prices import Prices
from gpuconsole.model.queues import ClusterQueue, PreemptionPolicy
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload
from gpuconsole.sim.policy import SimPolicy

if TYPE_CHECKING:
    from gpuconsole.sim.engine import Simulation


MOST = 64
"""Maximum number of nodes or quota steps that is tried, unless more is requested."""
RAISED = 1_000
"""Maximum increase of a priority that is tried."""


class PlanChange(Struct, frozen=True):
    """One change that a plan may propose, with its commands and cost."""

    sort: str
    """What is changed: `quota`, `nodes`, `priority`, `preemption` or `fair sharing`."""
    words: str
    commands: tuple[Command, ...]
    hourly: float = 0.0
    """USD per hour."""


Make = Callable[[int], PlanChange]
"""Function from an amount to the change of that amount."""


class PlanKind(Struct, frozen=True):
    """A kind of option: one change, or several changes that are tried together."""

    name: str
    most: int
    """Maximum amount of each part."""
    likely: int
    """Amount of each part that the request suggests; it is tried first."""
    parts: tuple[Make, ...]
    """Its changes. The amount of the first is minimized last."""


class _Demand(Struct):
    """Requested amount of one kind of accelerator."""

    largest: int = 0
    """Largest request of one pod."""
    total: int = 0

    @property
    def pods(self) -> int:
        """Number of pods of the largest size that together request the total."""
        return -(-self.total // self.largest)


_Wanted = Mapping[str, _Demand]
"""Extended resource, or CLAIMED for DRA devices → requested amount; no entry for zero."""


def kinds(snapshot: Snapshot, workloads: Sequence[Workload], policy: SimPolicy) -> list[PlanKind]:
    """List the kinds of changes to try for these workloads."""
    queues = _queues(snapshot, workloads)
    found: list[PlanKind] = []
    shared = [queue for queue in queues if queue.cohort]
    kept = [queue for queue in shared if queue.preemption.reclaim_within_cohort is not PreemptionPolicy.ANY]
    if kept:
        found.append(PlanKind("preemption", 1, 1, tuple(map(_reclaiming, kept))))
    if workloads and policy.kueue is not None:
        found.append(PlanKind("priority", RAISED, 1, (_raising(workloads),)))
        if shared and not policy.kueue.fair_sharing:
            found.append(PlanKind("fair sharing", 1, 1, (_fair_sharing,)))
    wanted = _wanted(snapshot, workloads)
    for flavor in dict.fromkeys(name for queue in queues for name, _ in _pairs(snapshot, queue, wanted)) or [""]:
        found += _capacity(snapshot, wanted, queues, flavor, policy.prices)
    return found


def subjects(commands: Iterable[Command]) -> set[tuple[object, ...]]:
    """Return what the commands change, regardless of the amount: equal results are the same option."""
    return set(map(_subject, commands))


def _subject(command: Command) -> tuple[object, ...]:
    match command:
        case SetQuota(queue, flavor):
            return SetQuota, queue, flavor
        case AddNodes(like):
            return AddNodes, like
        case _:
            return (type(command),)


def _queues(snapshot: Snapshot, workloads: Sequence[Workload]) -> list[ClusterQueue]:
    """Return the ClusterQueues of the requested workloads."""
    local_queues = (snapshot.local_queues.get(workload.local_queue) for workload in workloads)
    names = dict.fromkeys(local_queue.cluster_queue for local_queue in local_queues if local_queue is not None)
    found = (snapshot.cluster_queues.get(name) for name in names)
    return [queue for queue in found if queue is not None]


def _capacity(
    snapshot: Snapshot, wanted: _Wanted, queues: Sequence[ClusterQueue], flavor: str, prices: Prices
) -> Iterator[PlanKind]:
    """Yield the kinds for a flavor: more quota, more nodes, and both."""
    asked = max((demand.pods for demand in wanted.values()), default=0)
    most = max(MOST, asked)
    pairs = [(queue, pair) for queue in queues for pair in _pairs(snapshot, queue, wanted) if pair[0] == flavor]
    like = _cheapest(snapshot, flavor, wanted, prices)
    quotas = tuple(_quota(snapshot, *pair, wanted) for pair in pairs)
    if quotas:
        yield PlanKind("quota", most, asked, quotas)
    if like is not None:
        nodes = _nodes(like, _hourly(snapshot, like, prices))
        yield PlanKind("nodes", most, asked, (nodes,))
        if quotas:
            # Nodes cost money, so their number is minimized first.
            yield PlanKind("quota and nodes", most, asked, (*quotas, nodes))


def _wanted(snapshot: Snapshot, workloads: Iterable[Workload]) -> _Wanted:
    found: dict[str, _Demand] = {}
    for workload in workloads:
        for pod_set in workload.pod_sets:
            for name, amount in pod_accelerators(pod_set.template).items():
                demand = found.setdefault(name, _Demand())
                demand.largest = max(demand.largest, amount)
                demand.total += amount * pod_set.count
            claims = template_units(snapshot, workload.namespace, pod_set.template).get(DRA_DEVICE, 0)
            if claims:
                demand = found.setdefault(CLAIMED, _Demand())
                demand.largest = max(demand.largest, claims)
        if devices := wanted_units(snapshot, workload).get(DRA_DEVICE, 0):
            found[CLAIMED].total += devices
    return found


def _pairs(snapshot: Snapshot, queue: ClusterQueue, wanted: _Wanted) -> Iterator[tuple[str, str]]:
    """Yield (flavor, resource) of the queue's quotas for the requested accelerators; of all if none is requested."""
    counted = quota_accelerators(snapshot)
    for flavor, resource in queue.quotas():
        if resource in counted and (not wanted or _name(resource) in wanted):
            yield flavor, resource


def _name(resource: str) -> str:
    """Return the name of a quota's resource among the requested ones."""
    return CLAIMED if counted_as(resource) == CLAIMED else resource


def _quota(snapshot: Snapshot, queue: ClusterQueue, pair: tuple[str, str], wanted: _Wanted) -> Make:
    """Return a function that adds nominal quota to a queue, in steps of the request of the largest pod."""
    demand, unit = wanted.get(_name(pair[1])), quota_unit(snapshot, pair[1])
    step = demand.largest if demand is not None else 1

    def make(number: int) -> PlanChange:
        amount = queue.quotas()[pair].nominal + number * step
        words = f"quota {queue.name} +{counted_units(number * step, unit)} of {pair[0]}"
        return PlanChange("quota", words, (SetQuota(queue.name, *pair, amount),))

    return make


def _nodes(like: Node, price: float) -> Make:
    def make(number: int) -> PlanChange:
        words = f"{number} more node{'s' if number > 1 else ''} like {like.name}"
        return PlanChange("nodes", words, (AddNodes(like.name, number),), number * price)

    return make


def _raising(workloads: Sequence[Workload]) -> Make:
    def make(number: int) -> PlanChange:
        # By job, as the hash in a Workload's name changes each time that it is created.
        named = ((workload.owner or workload.key, workload.priority) for workload in workloads)
        raised = tuple(SetPriority(name, priority + number) for name, priority in named)
        return PlanChange("priority", f"priority +{number}", raised)

    return make


def _reclaiming(queue: ClusterQueue) -> Make:
    def make(number: int) -> PlanChange:
        policy = SetPreemption(queue.name, reclaim_within_cohort=PreemptionPolicy.ANY)
        return PlanChange("preemption", f"reclaimWithinCohort: Any in {queue.name}", (policy,))

    return make


def _fair_sharing(number: int) -> PlanChange:
    return PlanChange("fair sharing", "enable fair sharing", (Reconfigure(fair_sharing=True),))


def _cheapest(snapshot: Snapshot, flavor: str, wanted: _Wanted, prices: Prices) -> Node | None:
    """Return the node of a flavor (without queues: of all) with the lowest price per requested device.

    If no accelerators are requested, the node with the cheapest GPUs.
    """
    known = snapshot.flavors.get(flavor)
    labels = known.node_labels.items() if known is not None else ()
    found: list[tuple[float, str, Node]] = []
    for node in snapshot.nodes.all():
        if node.ready and all(node.labels.get(key) == value for key, value in labels):
            offered = sum(_offered(snapshot, node, name) for name in wanted) if wanted else node.gpus
            if offered:
                found.append((_hourly(snapshot, node, prices) / offered, node.name, node))
    return min(found, key=lambda one: one[:2])[2] if found else None


def _offered(snapshot: Snapshot, node: Node, name: str) -> int:
    return dra_devices(snapshot, node.name) if name == CLAIMED else node.allocatable.get(name, 0)


def _hourly(snapshot: Snapshot, node: Node, prices: Prices) -> float:
    """Return USD per hour for a node; if its devices are in ResourceSlices only, their price."""
    return node_price(node, prices, dra_devices(snapshot, node.name)).hourly


PARTS = 12
"""Number of steps in which a run advances to the horizon."""


class PlanOption(Struct, frozen=True, kw_only=True):
    """A simulated change, and its effect on the requested workloads."""

    kind: str
    """`nothing`, `preemption`, `priority`, `fair sharing`, `quota`, `nodes` or `quota and nodes`."""
    words: str
    commands: tuple[Command, ...]
    hourly: float
    """Cost of the added nodes, USD per hour. Quota alone costs nothing, except to other queues."""
    soon: bool
    """True if the requested workloads run within the target wait."""
    holds: bool
    """True if the requested workloads run in time, and at least 95% of them keep running to the horizon."""
    admitted: int
    """Number of requested workloads that run before the horizon."""
    p95_wait: Span | None
    """Wait until they run; more than the horizon if they do not run before it. None without workloads."""
    evicted_again: int
    """Number of requested workloads that are evicted before the horizon."""
    victims: int
    """Additional evictions of other workloads."""
    lost_gpu_hours: float
    lost: float
    """Cost of the work that others lose, USD."""


class PlanObstacle(Struct, frozen=True, kw_only=True):
    """Obstacle that keeps a requested workload from running without a change."""

    workload: str
    """Empty if it cannot be submitted."""
    code: PendingReason
    why: str
    """A sentence."""
    remedies: tuple[str, ...] = ()
    """Remedies that no option covers, such as creating or resuming a queue."""


class CapacityPlan(Struct, frozen=True, kw_only=True):
    """The request, the result without a change, and the options, cheapest first."""

    time: Time
    """Time of the fork."""
    workloads: tuple[str, ...]
    wanted: Span
    horizon: Span
    without: PlanOption
    options: tuple[PlanOption, ...]
    """The smallest sufficient option of each kind, by cost.

    Options whose workloads keep running come first; those whose workloads are evicted again come after them.
    """
    failed: tuple[PlanOption, ...]
    """Kinds that do not meet the target with the largest amount that was tried."""
    obstacles: tuple[PlanObstacle, ...] = ()
    """Reasons why workloads are pending at the horizon without a change."""

    @property
    def best(self) -> PlanOption | None:
        """The cheapest option whose workloads keep running to the horizon; None if no option meets the target.

        If all options have workloads that are evicted again, the cheapest of these.
        """
        return self.options[0] if self.options else None


def plan(base: "Simulation", commands: Sequence[Command], wanted: Span, horizon: Span = HOUR) -> CapacityPlan:
    """Find changes that let the workloads that `commands` submit run with a p95 wait of at most `wanted`.

    `base` is not modified. Every option is simulated in a fork of it, to `horizon` (at least `wanted`).
    """
    return complete_answer(plan_steps(base, commands, wanted, horizon))


def plan_steps(
    base: "Simulation", commands: Sequence[Command], wanted: Span, horizon: Span = HOUR
) -> Iterator[Progress[CapacityPlan]]:
    """`plan` as an iterator: the kinds of changes that are done, the one that is simulated, and in the end the plan."""
    search = _Search(base, commands, wanted, max(wanted, horizon))
    progress = Progress[CapacityPlan](doing="no change", done=0, total=1)
    yield progress
    without = yield from report_steps(search.plainly(), progress)
    options: list[PlanOption] = []
    failed: list[PlanOption] = []
    tried = [] if without.holds or not search.subjects else kinds(search.snapshot, search.workloads, base.policy)
    for done, kind in enumerate(tried, start=1):
        progress = Progress(doing=kind.name, done=done, total=len(tried) + 1)
        yield progress
        found = yield from report_steps(search.least(kind), progress)
        if not found.soon:
            failed.append(found)
        elif not any(subjects(found.commands) == subjects(other.commands) for other in options):
            options.append(found)
    if without.soon:
        options.append(without)
    made = CapacityPlan(
        time=base.now,
        workloads=tuple(sorted(search.subjects)),
        wanted=wanted,
        horizon=search.horizon,
        without=without,
        options=tuple(sorted(options, key=_rank)),
        failed=tuple(failed),
        obstacles=tuple(search.obstacles()),
    )
    yield Progress(done=len(tried) + 1, total=len(tried) + 1, answer=made, last=True)


def _rank(option: PlanOption) -> tuple[bool, float, int, str]:
    return not option.holds, option.hourly + option.lost, option.victims, option.kind


class _Search:
    """Simulates options in forks. Mutates: it records the requested workloads."""

    def __init__(self, base: "Simulation", commands: Sequence[Command], wanted: Span, horizon: Span) -> None:
        self.base, self.commands, self.wanted, self.horizon = base, tuple(commands), wanted, horizon
        self.snapshot = base.snapshot()
        # Kueue requeues pending workloads after the change: they are ahead of workloads submitted after it.
        self._start = base.now + base.policy.requeue_batch_interval + SECOND
        self._plain = self._future()
        asked = self._plain.simulation.snapshot()
        self.subjects = subjects_of(self.commands, asked)
        self.workloads = [asked.workloads[key] for key in sorted(self.subjects) if key in asked.workloads]

    def _future(self, changes: Sequence[Command] = (), late: Iterable[Command] = ()) -> Future:
        """Return a fork with the changes applied, pending workloads requeued, and then the requested ones submitted."""
        future = Future(self.base, changes)
        future.advance(self._start)
        for command in (*self.commands, *late):
            future.simulation.submit(command)
        return future

    def plainly(self) -> Steps[PlanOption]:
        """Simulate without a change, as the baseline of all options. Has to run first."""
        yield from self._run(self._plain)
        return self._judged("nothing", "no change", (), 0.0, self._plain)

    def obstacles(self) -> Iterator[PlanObstacle]:
        """Yield why workloads do not run at the horizon in the baseline; its run has to be complete."""
        self._plain.simulation.show_inadmissible(self.subjects)
        later = self._plain.simulation.snapshot()
        for line in self._plain.course.lines:
            if line.what is HistoryEventKind.COMMAND_REFUSED:
                yield PlanObstacle(workload="", code=PendingReason.INVALID, why=f"refused: {line.message}")
        for key in sorted(self.subjects):
            explanation = explain(later, key)
            if explanation.code is not PendingReason.NOT_WAITING:
                remedies = tuple(remedy.text for remedy in explanation.remedies if remedy.works)
                yield PlanObstacle(workload=key, code=explanation.code, why=explanation.headline, remedies=remedies)

    def least(self, kind: PlanKind) -> Steps[PlanOption]:
        """Find the smallest amount of a kind that holds; if none does, the smallest that meets the target temporarily.

        It is the largest amount if that does not meet the target either. First all parts get the same number; then each
        is minimized given the others, the last one first, until none gets smaller. A part can become zero.
        """
        numbers = [kind.most] * len(kind.parts)
        found = yield from self._tried(kind, numbers)
        if not found.soon:
            return found
        every = range(len(kind.parts))
        found = yield from self._halved(kind, numbers, every, found, least=1)
        if len(every) == 1:
            return found
        tried_with: dict[int, list[int]] = {}
        while open := [part for part in reversed(every) if tried_with.get(part) != numbers]:
            found = yield from self._halved(kind, numbers, open[:1], found, least=0)
            tried_with[open[0]] = [*numbers]
        return found

    def _halved(
        self, kind: PlanKind, numbers: list[int], parts: Sequence[int], found: PlanOption, *, least: int
    ) -> Steps[PlanOption]:
        """Find the smallest number of `parts` that holds, by binary search; mutates `numbers`. `found` is the best so
        far.

        The requested amount is tried first: with more quota, other workloads may be admitted first, so that more is
        needed.
        """
        below, above, likely, lasting = least - 1, numbers[parts[0]], kind.likely, found.holds
        while above - below > 1:
            # Zero is tried first: with a small amount, other workloads may be admitted first.
            number = 0 if below < 0 else likely if below < likely < above else (below + above) // 2
            option = yield from self._tried(kind, [number if at in parts else n for at, n in enumerate(numbers)])
            if option.holds or (option.soon and not lasting):
                found, above = option, number
            else:
                below = number
        for part in parts:
            numbers[part] = above
        return found

    def _tried(self, kind: PlanKind, numbers: Sequence[int]) -> Steps[PlanOption]:
        """Simulate an option to the horizon: its changes, then the requested workloads, then their priorities."""
        changes = [make(number) for make, number in zip(kind.parts, numbers, strict=True) if number]
        more = tuple(command for change in changes for command in change.commands)
        late = tuple(command for command in more if isinstance(command, SetPriority))
        early = tuple(command for command in more if not isinstance(command, SetPriority))
        future = self._future(early, late)
        yield from self._run(future)
        sort = " and ".join(dict.fromkeys(change.sort for change in changes))
        words, hourly = ", ".join(change.words for change in changes), sum(change.hourly for change in changes)
        return self._judged(sort, words, more, hourly, future)

    def _run(self, future: Future) -> Steps[None]:
        """Advance to the horizon in steps, so that the caller can do other work or cancel."""
        for part in range(1, PARTS + 1):
            future.advance(self._start + self.horizon * part // PARTS)
            yield

    def _judged(self, kind: str, words: str, more: tuple[Command, ...], hourly: float, future: Future) -> PlanOption:
        wait_of = {key: self._wait(future, key) for key in self.subjects}
        waits = sorted(wait_of.values())
        evictions = future.course.evictions()
        more_victims = more_evictions(evictions, self._plain.course.evictions())
        victims = [one for one in more_victims if one.workload not in self.subjects]
        again = {one.workload for one in evictions if one.workload in self.subjects}
        later = (one for one in evictions if one.time >= self._start + wait_of.get(one.workload, self.horizon + SECOND))
        left = {one.workload for one in later if one.workload in self.subjects}
        p95 = waits[max(0, -(-len(waits) * 95 // 100) - 1)] if waits else None
        running = sum(wait <= self.horizon for wait in waits)
        soon = p95 is not None and p95 <= self.wanted and self._all_but_few(running)
        return PlanOption(
            kind=kind,
            words=words,
            commands=more,
            hourly=hourly,
            soon=soon,
            holds=soon and self._all_but_few(len(waits) - len(left)),
            admitted=running,
            p95_wait=p95,
            evicted_again=len(again),
            victims=len(victims),
            lost_gpu_hours=sum(victim.lost_gpu_hours for victim in victims),
            lost=sum(victim.cost for victim in victims),
        )

    def _wait(self, future: Future, key: str) -> Span:
        started, workload = future.course.started.get(key), future.simulation.workload(key)
        ready = workload.condition("PodsReady") if workload is not None and not workload.finished else None
        reasons = {
            line.reason
            for line in future.course.lines
            if line.what is HistoryEventKind.EVICTED and line.workload == key
        }
        if started is not None and ready is not None and reasons <= {"PodsReadyTimeout"}:
            # Independent pods of a Job start before all of them have nodes.
            started = max(started, ready.since) if ready.status else None
        return self.horizon + SECOND if started is None else started - self._start

    def _all_but_few(self, running: int) -> bool:
        return running * 100 >= 95 * len(self.subjects)
