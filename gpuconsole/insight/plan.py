"""What it takes to let workloads in soon enough: candidates of each kind, tried in forks, the cheapest that holds.

A kind of candidate grows in one number (GPUs of quota, nodes, a priority), and more of it never makes the asked ones
wait longer as a rule: so the least is found by halving, and what is found is tried before it is proposed.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from gpuconsole.insight.cost import node_hourly
from gpuconsole.insight.futures import Future, Victim, more_evictions, subjects_of
from gpuconsole.model.clock import HOUR, SECOND, Span
from gpuconsole.model.cluster import Node
from gpuconsole.model.commands import AddNodes, Command, Reconfigure, SetPreemption, SetPriority, SetQuota
from gpuconsole.model.prices import Prices
from gpuconsole.model.queues import ClusterQueue, PreemptionPolicy
from gpuconsole.model.resources import is_gpu
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload

if TYPE_CHECKING:
    from gpuconsole.sim.engine import Simulation

MOST = 64
"""Most of a number that is tried: nodes, or steps of quota."""
PARTS = 12
"""Pieces of a run to the horizon."""
RAISED = 1_000
"""By so much a priority is raised to see whether that helps at all."""


class Option(Struct, frozen=True, kw_only=True):
    """One way of letting them in, which was tried."""

    kind: str
    """`nothing`, `preemption`, `priority`, `fair sharing`, `quota`, `nodes` or `quota and nodes`."""
    words: str
    commands: tuple[Command, ...]
    hourly: float
    """USD that it costs an hour: what nodes cost that are added. Quota alone costs nothing, but somebody else."""
    holds: bool
    """They are admitted within the wait that was asked for."""
    admitted: int
    """How many of them are admitted before the horizon."""
    p95_wait: Span | None
    """Until the asked ones run; one that does not before the horizon has waited to it. None if there are none."""
    victims: int
    lost_gpu_hours: float
    lost: float
    """USD of the work that others lose by it."""


class Plan(Struct, frozen=True, kw_only=True):
    """What was asked for, what comes without any change, and what would do, the cheapest first."""

    workloads: tuple[str, ...]
    wanted: Span
    horizon: Span
    without: Option
    options: tuple[Option, ...]
    """Each the least of its kind that holds; by cost, then by what others lose."""
    failed: tuple[Option, ...]
    """Kinds of which not even the most that was tried is enough."""

    @property
    def best(self) -> Option | None:
        """The cheapest that holds."""
        return self.options[0] if self.options else None


class Planning(Struct, frozen=True, kw_only=True):
    """How far a plan is: the kind that is being tried, and how many of how many are done."""

    kind: str = ""
    done: int
    of: int
    plan: Plan | None = None
    """Once all were tried."""


Make = Callable[[int], tuple[str, tuple[Command, ...], float]]
"""A number → words, commands and USD an hour."""


def plan(base: "Simulation", commands: Sequence[Command], wanted: Span, horizon: Span = HOUR) -> Plan:
    """Find what lets the workloads that `commands` submit run with a p95 wait of at most `wanted`.

    `base` is not touched. Whatever holds was tried in a fork of it, to `horizon` (at least `wanted`).
    """
    *_, last = planning(base, commands, wanted, horizon)
    assert last.plan is not None
    return last.plan


def planning(base: "Simulation", commands: Sequence[Command], wanted: Span, horizon: Span = HOUR) -> Iterator[Planning]:
    """The same piece by piece: who stops asking gives up. The last one has the plan."""
    search = _Search(base, commands, wanted, max(wanted, horizon))
    without = yield from _told(search.plainly(), Planning(kind="no change", done=0, of=1))
    options: list[Option] = []
    failed: list[Option] = []
    kinds = [] if without.holds else search.kinds()
    for done, (kind, most, make) in enumerate(kinds, start=1):
        state = Planning(kind=kind, done=done, of=len(kinds) + 1)
        found = yield from _told(search.least(kind, most, make), state)
        (options if found.holds else failed).append(found)
    cheapest = sorted(options, key=lambda option: (option.hourly + option.lost, option.victims, option.kind))
    made = Plan(
        workloads=tuple(sorted(search.subjects)),
        wanted=wanted,
        horizon=search.horizon,
        without=without,
        options=(without,) if without.holds else tuple(cheapest),
        failed=tuple(failed),
    )
    yield Planning(done=len(kinds) + 1, of=len(kinds) + 1, plan=made)


Trial = Generator[None, None, Option]
"""A candidate on its way to the horizon."""


def _told(trial: Trial, state: Planning) -> Generator[Planning, None, Option]:
    """Tell how far the plan is with every piece of a trial; returns what came of that."""
    while True:
        yield state
        try:
            next(trial)
        except StopIteration as over:
            found: Option = over.value
            return found


class _Search:
    """Tries candidates in forks. Mutates: it remembers who the asked ones are."""

    def __init__(self, base: "Simulation", commands: Sequence[Command], wanted: Span, horizon: Span) -> None:
        self.base, self.commands, self.wanted, self.horizon = base, tuple(commands), wanted, horizon
        self.snapshot = base.snapshot()
        self._plain = Future(base, self.commands)
        asked = self._plain.simulation.snapshot()
        self.subjects = subjects_of(self.commands, asked)
        self.workloads = [asked.workloads[key] for key in sorted(self.subjects) if key in asked.workloads]

    def plainly(self) -> Trial:
        """What comes without any change, which all others are compared with. It has to be first."""
        yield from self._run(self._plain)
        return self._judged("nothing", "no change", (), 0.0, self._plain)

    def _run(self, future: Future) -> Generator[None, None, None]:
        """Come to the horizon in a few pieces, so that others get their turn, or somebody gives up."""
        for part in range(1, PARTS + 1):
            future.advance(self.base.now + self.horizon * part // PARTS)
            yield

    def tried(self, kind: str, words: str, more: tuple[Command, ...], hourly: float) -> Trial:
        """Run a candidate to the horizon: first what it changes, then what was asked for, then its priorities."""
        late = tuple(command for command in more if isinstance(command, SetPriority))
        early = tuple(command for command in more if not isinstance(command, SetPriority))
        future = Future(self.base, (*early, *self.commands, *late))
        yield from self._run(future)
        return self._judged(kind, words, more, hourly, future)

    def _judged(self, kind: str, words: str, more: tuple[Command, ...], hourly: float, future: Future) -> Option:
        waits = sorted(self._wait(future, key) for key in self.subjects)
        victims: tuple[Victim, ...] = more_evictions(future, self._plain)
        p95 = waits[max(0, -(-len(waits) * 95 // 100) - 1)] if waits else None
        running = sum(key in future.started for key in self.subjects)
        return Option(
            kind=kind,
            words=words,
            commands=more,
            hourly=hourly,
            holds=p95 is not None and p95 <= self.wanted and self._all_but_few(running),
            admitted=running,
            p95_wait=p95,
            victims=len(victims),
            lost_gpu_hours=sum(victim.lost_gpu_hours for victim in victims),
            lost=sum(victim.cost for victim in victims),
        )

    def least(self, kind: str, most: int, make: Make) -> Trial:
        """The least of a kind that holds, found by halving; the most of it where not even that does."""
        found = yield from self.tried(kind, *make(most))
        below, above = 0, most
        while found.holds and above - below > 1:
            middle = (below + above) // 2
            option = yield from self.tried(kind, *make(middle))
            if option.holds:
                found, above = option, middle
            else:
                below = middle
        return found

    def kinds(self) -> list[tuple[str, int, Make]]:
        """What could be tried here: kind, the most of it, and how a candidate is made."""
        kinds: list[tuple[str, int, Make]] = [("preemption", 1, self._preemption)] if self._reclaims() else []
        if self.workloads and self.base.policy.kueue is not None:
            kinds.append(("priority", RAISED, self._priority))
            if not self.base.policy.kueue.fair_sharing:
                kinds.append(("fair sharing", 1, _fair_sharing))
        for flavor in dict.fromkeys(name for queue in self._queues() for name, _ in _gpu_quotas(queue)) or [""]:
            kinds += self._capacity(flavor)
        return kinds

    def _capacity(self, flavor: str) -> list[tuple[str, int, Make]]:
        """More quota of a flavor, more of its nodes, and both."""
        quota, nodes = self._quota(flavor), self._nodes(flavor)
        kinds: list[tuple[str, int, Make]] = []
        if quota is not None:
            kinds.append(("quota", MOST, quota))
        if nodes is not None:
            kinds.append(("nodes", MOST, nodes))
        if quota is not None and nodes is not None:
            both = quota, nodes
            kinds.append(("quota and nodes", MOST, lambda number: _both(both[0](number), both[1](number))))
        return kinds

    def _wait(self, future: Future, key: str) -> Span:
        started = future.started.get(key)
        return self.horizon + SECOND if started is None else started - self.base.now

    def _all_but_few(self, running: int) -> bool:
        return running * 100 >= 95 * len(self.subjects)

    def _queues(self) -> list[ClusterQueue]:
        """The ClusterQueues that the asked ones go to."""
        doors = (self.snapshot.local_queues.get(workload.local_queue) for workload in self.workloads)
        names = dict.fromkeys(door.cluster_queue for door in doors if door is not None)
        found = (self.snapshot.cluster_queues.get(name) for name in names)
        return [queue for queue in found if queue is not None]

    def _step(self) -> int:
        """GPUs of one step: what the largest of the asked ones' pods takes."""
        return max([1, *(_largest_pod(workload) for workload in self.workloads)])

    def _quota(self, flavor: str) -> Make | None:
        """More nominal quota of a flavor's GPUs in each queue that is asked and has some."""
        pairs = [(queue, pair) for queue in self._queues() for pair in _gpu_quotas(queue) if pair[0] == flavor]
        if not pairs:
            return None
        step = self._step()

        def make(number: int) -> tuple[str, tuple[Command, ...], float]:
            commands = []
            for queue, (_, resource) in pairs:
                amount = queue.quotas()[flavor, resource].nominal + number * step
                commands.append(SetQuota(queue.name, flavor, resource, amount))
            words = ", ".join(f"{queue.name} +{number * step} GPUs of {flavor}" for queue, _ in pairs)
            return f"quota {words}", tuple(commands), 0.0

        return make

    def _nodes(self, flavor: str) -> Make | None:
        """More nodes like the cheapest one of a flavor; of all, where nothing queues."""
        like = _cheapest(self.snapshot, flavor, self.base.policy.prices)
        if like is None:
            return None
        price = node_hourly(like, self.base.policy.prices)

        def make(number: int) -> tuple[str, tuple[Command, ...], float]:
            words = f"{number} more node{'s' if number > 1 else ''} like {like.name}"
            return words, (AddNodes(like.name, number),), number * price

        return make

    def _priority(self, number: int) -> tuple[str, tuple[Command, ...], float]:
        raised = tuple(SetPriority(workload.key, workload.priority + number) for workload in self.workloads)
        return f"priority +{number}", raised, 0.0

    def _reclaims(self) -> bool:
        return any(queue.preemption.reclaim_within_cohort is not PreemptionPolicy.ANY for queue in self._queues())

    def _preemption(self, number: int) -> tuple[str, tuple[Command, ...], float]:
        queues = [queue.name for queue in self._queues()]
        policies = tuple(SetPreemption(name, reclaim_within_cohort=PreemptionPolicy.ANY) for name in queues)
        return f"reclaimWithinCohort: Any in {', '.join(queues)}", policies, 0.0


def _fair_sharing(number: int) -> tuple[str, tuple[Command, ...], float]:
    return "fair sharing on", (Reconfigure(fair_sharing=True),), 0.0


def _both(
    one: tuple[str, tuple[Command, ...], float], other: tuple[str, tuple[Command, ...], float]
) -> tuple[str, tuple[Command, ...], float]:
    return f"{one[0]}, {other[0]}", (*one[1], *other[1]), one[2] + other[2]


def _largest_pod(workload: Workload) -> int:
    requests = (pod_set.template.requests for pod_set in workload.pod_sets)
    return max((sum(amount for name, amount in r.items() if is_gpu(name)) for r in requests), default=1)


def _gpu_quotas(queue: ClusterQueue) -> list[tuple[str, str]]:
    return [pair for pair in queue.quotas() if is_gpu(pair[1])]


def _cheapest(snapshot: Snapshot, flavor: str, prices: Prices) -> Node | None:
    """The node with the cheapest GPUs among those of a flavor."""
    known = snapshot.flavors.get(flavor)
    labels = known.node_labels.items() if known is not None else ()
    nodes = [
        node
        for node in snapshot.nodes.all()
        if node.gpus and node.ready and all(node.labels.get(key) == value for key, value in labels)
    ]
    return min(nodes, key=lambda node: (node_hourly(node, prices) / node.gpus, node.name), default=None)
