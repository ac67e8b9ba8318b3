"""All that a session knows, and how it is forked and brought up to date after the configuration changed.

`State` mutates; the modules beside it change it: `workloads` for workloads, `changes` for everything else.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct

from gpuconsole.model.clock import Time
from gpuconsole.model.decisions import AdmissionDecision, Refuse
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.accounts import Accounts
from gpuconsole.scheduling.kueue.afs import Ledger, caught_up, usage
from gpuconsole.scheduling.kueue.assignment import Resume
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.context import Context, Gates
from gpuconsole.scheduling.kueue.findings import Findings
from gpuconsole.scheduling.kueue.requests import Holding, Request
from gpuconsole.scheduling.kueue.roster import Roster
from gpuconsole.scheduling.kueue.rules import Objects, Setup
from gpuconsole.scheduling.kueue.topology.sites import Sites
from gpuconsole.scheduling.kueue.topology.strangers import Strangers
from gpuconsole.scheduling.kueue.tree import Column
from gpuconsole.scheduling.kueue.usage import UsageTree

if TYPE_CHECKING:
    from gpuconsole.scheduling.kueue.passing import Passing, Survey
    from gpuconsole.scheduling.kueue.quiet import Audience
    from gpuconsole.scheduling.kueue.rest import Rest


COHORT, QUEUE = "Cohort/", "ClusterQueue/"
"""How the names in `State.due` begin."""


class Progress(Struct, frozen=True):
    """Where a workload's search for flavors goes on, and when that was recorded."""

    resume: Resume
    generation: int
    """Of its ClusterQueue: grows with every change of who holds quota there, or of quotas in its tree."""
    cycle: int
    shape: bytes
    """Of the workload; empty where that is not known."""

    def outdated(self, generation: int, cycle: int, shape: bytes, *, preserve: bool) -> bool:
        """True if the search has to start anew, as things are now (lastAssignmentOutdated).

        With `preserve` (gate FlavorFungibilityPreserveScanProgress) what the last cycle recorded stands, whoever came
        or went since, unless the workload took another shape.
        """
        if preserve:
            if self.shape and shape and self.shape != shape:
                return True
            if cycle - self.cycle <= 1:
                return False
        return generation > self.generation


class SecondPass(Struct, frozen=True):
    """When a workload that holds quota is tried again, because it lacks a place; `round` counts the attempts."""

    at: Time
    round: int


class State:
    """The data of a session. Mutates; `fork` shares what neither side will change in place."""

    __slots__ = (
        "_objects_shared",
        "accounts",
        "asked",
        "audience",
        "backoffs",
        "changed_below",
        "charged",
        "charging",
        "config",
        "cycles",
        "devices_stale",
        "due",
        "findings",
        "gates",
        "generations",
        "idle",
        "in_flight",
        "ledgers",
        "nodes_stale",
        "noted",
        "now",
        "objects",
        "open_cycle",
        "passing",
        "progress",
        "recharged",
        "requoted",
        "resting",
        "roster",
        "samples",
        "second_passes",
        "setup",
        "stale",
        "strangers",
        "surveys",
        "turned_away",
        "woken_in_flight",
    )

    def __init__(self, config: KueueConfig) -> None:
        self.config = config
        self.gates = Gates(config)
        self.objects = Objects()
        self._objects_shared = False
        self.setup = Setup(Objects(), config)
        self.stale = False
        """The objects changed since the setup was compiled; `changes.settle` brings it up to date."""
        self.nodes_stale = False
        """Only nodes changed."""
        self.devices_stale = False
        """What claims can ask for changed."""
        self.turned_away: dict[int, Refuse] = {}
        """Workloads that cannot be queued as they are, by id, until that is told."""
        self.strangers = Strangers()
        """Pods that no topology placed."""
        self.accounts = self._empty_accounts()
        self.roster = Roster()
        self.findings = Findings()
        """What cycles found, of trees in which nothing has happened since."""
        self.resting: dict[int, Rest] = {}
        """By root, the trees in which another cycle would change nothing; forks find that out by themselves."""
        self.passing: dict[str, Passing] = {}
        """By ClusterQueue, heads that are parked already and whose cycles are counted."""
        self.surveys: dict[str, Survey] = {}
        """By ClusterQueue, heads that could pass like that."""
        self.progress: dict[int, Progress] = {}
        """By workload id, only where flavors are left to try."""
        self.generations: dict[str, int] = {}
        """ClusterQueue → how often what it can give changed."""
        self.due: dict[str, None] = {}
        """Cohort trees and ClusterQueues whose parked workloads are to be tried again, as `notify` names them."""
        self.noted: dict[str, None] = {}
        """ClusterQueues, and cohorts (as "Cohort/NAME"), to notify once the changed configuration is compiled."""
        self.changed_below: dict[str, None] = {}
        """Cohorts one of whose ClusterQueues changed since the setup was compiled."""
        self.requoted: dict[str, None] = {}
        """ClusterQueues in whose trees quotas changed since the setup was compiled."""
        self.second_passes: dict[int, SecondPass] = {}
        """By id of a workload with quota."""
        self.asked: set[int] = set()
        """Victims whose evictions were decided and not applied yet, by id."""
        self.backoffs: dict[int, Time] = {}
        """When parked workloads may be tried again, by id."""
        self.charging = config.usage_based is not None
        """Admission fair sharing is on: `ledgers` keeps the next four."""
        self.ledgers: dict[str, Ledger] = {}
        """LocalQueue → what it is charged with."""
        self.charged: dict[str, str] = {}
        """Workload with an entry penalty → its LocalQueue."""
        self.recharged: dict[str, None] = {}
        """LocalQueues whose charges changed since somebody asked."""
        self.samples: dict[str, Time] = {}
        """When LocalQueues are looked at."""
        self.audience: Audience | None = None
        """Who is told why it waits, by cycles that leave refusals out; None = everybody."""
        self.open_cycle: Iterator[tuple[list[AdmissionDecision], bool]] | None = None
        """A cycle that waits until all are ready. A fork does not have it: its heads are back in their queues there."""
        self.in_flight: set[int] = set()
        """Heads that an open cycle has not put back, by id."""
        self.woken_in_flight: set[str] = set()
        """ClusterQueues that were woken while a cycle was open: its heads are tried again at once."""
        self.cycles = 0
        self.idle = 0
        """How many cycles in a row decided nothing."""
        self.now: Time = 0
        """The latest time that was passed in."""

    def fork(self) -> "State":
        twin = State.__new__(State)
        twin.config, twin.gates = self.config, self.gates
        twin.objects = self.objects
        twin._objects_shared = self._objects_shared = True
        twin.setup, twin.stale, twin.nodes_stale = self.setup, self.stale, self.nodes_stale
        twin.accounts, twin.roster = self.accounts.fork(), self.roster.fork()
        twin.findings, twin.resting = self.findings.fork(), {}
        twin.passing = {name: passing.copy() for name, passing in self.passing.items()}
        twin.surveys, twin.audience = self.surveys.copy(), self.audience
        twin.progress, twin.generations = self.progress.copy(), self.generations.copy()
        twin.strangers = self.strangers.copy()
        twin.devices_stale, twin.turned_away = self.devices_stale, self.turned_away.copy()
        twin.asked = self.asked.copy()
        twin.due, twin.backoffs, twin.cycles = self.due.copy(), self.backoffs.copy(), self.cycles
        twin.noted, twin.changed_below = self.noted.copy(), self.changed_below.copy()
        twin.requoted = self.requoted.copy()
        twin.second_passes = self.second_passes.copy()
        twin.charging, twin.samples = self.charging, self.samples.copy()
        twin.ledgers, twin.charged = self.ledgers.copy(), self.charged.copy()
        twin.recharged = self.recharged.copy()
        twin.idle, twin.now = self.idle, self.now
        twin.open_cycle, twin.in_flight, twin.woken_in_flight = None, set(), set()
        for number in sorted(self.in_flight):
            record = twin.roster.records[number]
            if isinstance(record, Request):
                twin.roster.queue(record.cluster_queue).push(record)
        return twin

    def weight_of(self, local_queue: str) -> float:
        """What a LocalQueue's usage is divided by; one that is gone has the usual weight (ResolveLQWeight)."""
        queue = self.objects.local_queues.get(local_queue)
        return 1.0 if queue is None else queue.fair_weight

    def used_lately(self, local_queue: str) -> float:
        """One number for what a LocalQueue used, to compare it with others by (CalcLocalQueueFSUsage)."""
        settings, ledger = self.config.usage_based, self.ledgers.get(local_queue)
        assert settings is not None
        weight = self.weight_of(local_queue)
        if ledger is None:
            return usage({}, {}, weight, settings.resource_weights)
        penalty = ledger.penalty
        if local_queue not in self.samples:
            ledger = caught_up(ledger, self.now, settings.usage_sampling_interval, settings.usage_half_life)
        return usage(ledger.consumed, penalty, weight, settings.resource_weights)

    def own_objects(self) -> Objects:
        """The configuration, to be changed."""
        if self._objects_shared:
            self.objects, self._objects_shared = self.objects.copy(), False
        return self.objects

    def end_passes(self) -> None:
        """Take those back to their queues whose turn has not come."""
        for name, passing in self.passing.items():
            passing.end(self.roster.queue(name))
        self.passing.clear()

    def compile(self, extra: Iterable[Column] = ()) -> None:
        """Build the setup and the accounts anew; columns keep their numbers."""
        self.setup = Setup(self.objects, self.config, [*self.setup.tree.columns, *extra])
        self._account_anew()
        self.stale = self.nodes_stale = self.devices_stale = False

    def relocate(self) -> None:
        """Take in that nodes changed; without a topology it does not matter which nodes there are."""
        if self.setup.topologies:
            self.setup = self.setup.with_nodes(self.objects)
            self._account_anew()
        self.nodes_stale = False

    def restock(self) -> None:
        """Take in that device classes, claim templates or devices changed."""
        self.setup = self.setup.with_devices(self.objects, self.config)
        self.devices_stale = False

    def _account_anew(self) -> None:
        self.end_passes()
        self.findings, self.resting, self.surveys = self.findings.anew(), {}, {}
        self.accounts = self._empty_accounts()
        for holdings in self.roster.holdings.values():
            for holding in holdings.values():
                self.accounts.add(holding)

    def _empty_accounts(self) -> Accounts:
        sites = Sites(self.setup.topologies)
        sites.occupy([(node, amounts, 1) for node, amounts in self.strangers.used.items()])
        return Accounts(UsageTree(self.setup.tree), sites)

    def is_waiting(self, request: Request) -> bool:
        """True if the workload of a head still waits in the ClusterQueue in which it was taken."""
        record = self.roster.records[request.id]
        return isinstance(record, Request) and record.cluster_queue == request.cluster_queue

    def hold(self, holding: Holding) -> None:
        """A workload holds quota, or holds other quota than before."""
        old = self.roster.records[holding.id]
        self.accounts.add(holding)
        self.roster.hold(holding)
        if not isinstance(old, Holding) or old.marks != holding.marks:
            self.findings.note(self.setup.tree, holding.cluster_queue, holding.marks)
        self.stir(holding.cluster_queue)

    def stir(self, cluster_queue: str) -> None:
        """Something happened to somebody who holds quota in a ClusterQueue: its tree is at rest no more."""
        node = self.setup.tree.queues.get(cluster_queue)
        if node is not None:
            self.resting.pop(self.setup.tree.root(node), None)

    def bump(self, cluster_queue: str) -> None:
        """What the queue can give changed: searches for flavors that were recorded earlier start anew."""
        self.generations[cluster_queue] = self.generations.get(cluster_queue, 0) + 1

    def context(self) -> Context:
        """What the next cycle works on; the accounts are a copy."""
        return Context(
            config=self.config,
            gates=self.gates,
            setup=self.setup,
            accounts=self.accounts.for_cycle(overlapping=self.gates.layouts.overlapping),
            held_by=self._heaviest_first() if self.charging else self.roster.ranked,
            # Usage by LocalQueue changes with time, and places in topologies with pods that admission does not know.
            findings=None if self.charging or self.setup.topologies else self.findings,
            book=self.findings.book,
            unready=lambda: any(not h.workload.is_true("PodsReady") for h in self.roster.holders),
        )

    def _heaviest_first(self) -> Callable[[str], Sequence[Holding]]:
        """Who holds quota in a ClusterQueue; where LocalQueues take turns, the one that used most loses first."""
        used = cache(self.used_lately)

        @cache
        def ranked(name: str) -> Sequence[Holding]:
            holdings = self.roster.ranked(name)
            if not self.config.takes_turns(self.setup.queues[name].queue):
                return holdings
            return sorted(holdings, key=lambda h: (not h.evicted, -used(h.workload.local_queue)))

        return ranked

    def notify(self, cluster_queue: str) -> None:
        """Have the parked workloads of a ClusterQueue's whole tree tried again at the next wake-up.

        The tree is the one of now, whatever becomes of it until then. A tree whose cohorts lead in a circle is left
        alone (Kueue 0.19 pkg/cache/queue/inadmissible_workloads.go: notifyRetryInadmissibleWithoutLock).
        """
        name = self.tree_name(cluster_queue)
        if name:
            self.due[name] = None

    def tree_name(self, cluster_queue: str) -> str:
        """A ClusterQueue's tree as `due` names it; nothing where there is no such queue."""
        tree = self.setup.tree
        node = tree.queues.get(cluster_queue)
        if node is None:
            return ""
        root = tree.root(node)
        return f"{QUEUE if root == node else COHORT}{tree.names[root]}"

    def notify_cohort(self, cohort: str) -> None:
        """`notify` of a cohort's tree."""
        tree = self.setup.tree
        node = tree.cohorts.get(cohort)
        if node is not None:
            self.due[f"{COHORT}{tree.names[tree.root(node)]}"] = None

    def notify_about(self, workload: Workload) -> None:
        """`notify` of the ClusterQueue that a workload's LocalQueue leads to; a stopped LocalQueue leads nowhere.

        Kueue 0.19 manager.go: QueueAssociatedInadmissibleWorkloadsAfter.
        """
        self.notify(self.setup.cluster_queue_of(workload.local_queue))

    def tree_of(self, cluster_queue: str) -> Iterable[str]:
        """All ClusterQueues in the tree of one, itself included."""
        tree = self.setup.tree
        node = tree.queues.get(cluster_queue)
        if node is None:
            return ()
        return (tree.names[queue] for queue in tree.subtree_queues(tree.root(node)))
