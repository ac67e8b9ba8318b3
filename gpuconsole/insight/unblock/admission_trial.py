"""Trial admission of a workload in a fork, and the search for the smallest change that admits it.

`ChangeTrial` runs admission cycles, with a change or on an empty cluster, until another would change nothing. Time does
not pass: no workload ends, and evictions take effect at once. The number of cycles is limited, not their time, so that
results are the same on every machine. `dominant_blocker` reads the reason code from the engine's entry
(`KueueSession.examine_cycle`), not from a message. `EmptyCluster` finds workloads that Kueue can never admit.

Each search is an iterator that yields no steps if no change of its kind works. `gaps` is the quota that the workload
lacks, flavor by flavor: the starting point of `ends` and `raises`, which give it more quota. The other searches change
the workload itself, the nodes, or stopped objects.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import islice, takewhile

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.insight.index.demand import held
from gpuconsole.insight.pending.reasons import SEVERITY, PendingReason
from gpuconsole.insight.unblock.changes import (
    AddNodesStep,
    AdmitNamespace,
    AskLess,
    DropSelector,
    FewerPods,
    Limit,
    LowerGang,
    MoveTo,
    Owner,
    RaiseLimit,
    Resume,
    Step,
    Steps,
    TriedEnough,
    UsePriority,
    UseTopology,
    apply_change,
    endings,
    minimal_changes,
    new_tolerations,
    size,
)
from gpuconsole.model.cluster import Namespace, Node, Pod
from gpuconsole.model.devices import accelerators, is_counted
from gpuconsole.model.events import Admit, Preempt, Refuse
from gpuconsole.model.job import Job
from gpuconsole.model.labels import HOSTNAME
from gpuconsole.model.pod_template import PodSet
from gpuconsole.model.queues import ResourceFlavor, StopPolicy, WorkloadPriorityClass
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue import messages
from gpuconsole.scheduling.kueue.assignment import FlavorAssignmentMode, FlavorResult, FlavorSearch, PodSetResult
from gpuconsole.scheduling.kueue.cluster_queue import RequeueReason
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.entry import CycleEntry, EntryStatus
from gpuconsole.scheduling.kueue.messages import GranularReason
from gpuconsole.scheduling.kueue.session import KueueSession
from gpuconsole.sim.admission_simulator import AdmissionSimulator
from gpuconsole.sim.policy import Capacity, FixedCapacity

_CAUSES = {
    GranularReason.NONE: PendingReason.QUOTA,
    GranularReason.WAITING_FOR_QUOTA: PendingReason.QUOTA,
    GranularReason.EXCEEDS_MAX_QUOTA: PendingReason.EXCEEDS_MAX,
    GranularReason.NO_MATCHING_FLAVOR: PendingReason.FLAVOR_MISMATCH,
    GranularReason.TOPOLOGY_PLACEMENT_FAILED: PendingReason.TOPOLOGY,
}
_STATUSES = {
    EntryStatus.ASSUMED: PendingReason.NOT_WAITING,
    EntryStatus.SKIPPED: PendingReason.CONTENTION,
    EntryStatus.GATED: PendingReason.GATED,
    EntryStatus.BLOCKED: PendingReason.PODS_READY,
    EntryStatus.EVICTED: PendingReason.TOPOLOGY,
}


def dominant_blocker(entry: CycleEntry) -> PendingReason:
    """Return the dominant reason code of an engine entry; `not-waiting` if it would be admitted."""
    if entry.status in _STATUSES:
        return _STATUSES[entry.status]
    if entry.requeue in (RequeueReason.PENDING_PREEMPTION, RequeueReason.PENDING_MIGRATION):
        return PendingReason.WAITING_FOR_VICTIMS
    if not entry.assignment.pod_sets:
        return _unfit(entry)
    codes = (code for result in entry.assignment.pod_sets for code in _obstacles(result))
    return _worst(codes, PendingReason.QUOTA)


def _unfit(entry: CycleEntry) -> PendingReason:
    """Return the code of a workload that was refused before its flavors were evaluated."""
    if entry.message == messages.FAILED_CHECKS:
        return PendingReason.CHECKS
    if entry.granular_reason is GranularReason.SUSPENDED:
        return PendingReason.QUEUE_INACTIVE
    unknown = entry.message == messages.missing_namespace_message(entry.request.workload.namespace)
    if unknown or entry.requeue is RequeueReason.NAMESPACE_MISMATCH:
        return PendingReason.NAMESPACE
    return PendingReason.INVALID


def _obstacles(result: PodSetResult) -> Iterator[PendingReason]:
    """Yield the code of each resource group of a pod set: that of its flavor that is closest to fitting."""
    if result.worst_mode == FlavorAssignmentMode.FIT:
        return
    if result.failure:
        yield PendingReason.TOPOLOGY
    elif not result.choices:
        yield _unanswered(result)
    else:
        searched = [search for search in result.searches if not _fits(result, search)]
        yield from (_least(search.results) for search in searched)
        if not searched:
            # There is quota for every resource, so only topology can be the reason.
            yield PendingReason.TOPOLOGY


def _unanswered(result: PodSetResult) -> PendingReason:
    """Return the code where no flavor was found, or no resource group covers the next resource."""
    last = result.searches[-1].results if result.searches else ()
    covered = bool(last) and all(noted.mode == FlavorAssignmentMode.NO_FIT for noted in last)
    return _least(last) if covered else PendingReason.FLAVOR_MISMATCH


def _fits(result: PodSetResult, search: FlavorSearch) -> bool:
    choice = result.choices.get(search.resource)
    return choice is not None and any(
        n.flavor == choice.flavor and n.mode == FlavorAssignmentMode.FIT for n in search.results
    )


def _least(noted: Iterable[FlavorResult]) -> PendingReason:
    """Return the code of the flavor that is closest to fitting."""
    codes = [cause(one) for one in noted if one.reasons]
    return min(codes, key=lambda code: SEVERITY[code], default=PendingReason.QUOTA)


def cause(noted: FlavorResult) -> PendingReason:
    """Return the reason code of a flavor that does not fit; `not-waiting` if it fits."""
    return (
        PendingReason.NOT_WAITING
        if noted.mode == FlavorAssignmentMode.FIT
        else _CAUSES.get(noted.granular_reason, PendingReason.QUOTA)
    )


def _worst(codes: Iterable[PendingReason], otherwise: PendingReason) -> PendingReason:
    return max(codes, key=lambda code: SEVERITY[code], default=otherwise)


MOST_CYCLES = 200
"""A workload that is not admitted within this number of cycles counts as not admitted."""
MOST_CYCLES_IN_ALL = 2000
PROBATION = 10
"""A change does not count if the workload is evicted again within this number of cycles."""
_PROMISING = (
    PendingReason.NOT_WAITING,
    PendingReason.WAITING_FOR_VICTIMS,
    PendingReason.CONTENTION,
    PendingReason.PODS_READY,
)


class OtherWorkloads(Struct, frozen=True):
    """Other workloads that changes affect until the pending one is admitted."""

    preempted: tuple[str, ...] = ()
    """Its victims."""
    admitted_first: tuple[str, ...] = ()
    """Workloads of its cohort tree that are admitted before it on the same quota."""


class ChangeTrial:
    """Tries whether changes would admit a workload, in forks of an AdmissionSimulator; counts the trials. Mutable."""

    def __init__(
        self,
        rehearsal: AdmissionSimulator,
        key: str,
        classes: Iterable[WorkloadPriorityClass] = (),
        most_cycles: int = MOST_CYCLES_IN_ALL,
    ) -> None:
        self.rehearsal = rehearsal
        self.key = key
        self.classes = tuple(classes)
        """WorkloadPriorityClasses to choose from."""
        self.tries = self.cycles = 0
        """Number of trials, and of cycles that were run for them."""
        self._most_cycles = most_cycles

    def works(self, steps: Sequence[Step]) -> bool:
        """True if the workload reserves quota once all these changes are made, and keeps it. Raises TriedEnough.

        Most changes fail early: if the next cycle refuses the workload even as the head of its queue, the trial ends.
        So a change that works may be missed, but a change that does not work never passes.
        """
        fork = self.changed(steps)
        return _promises(fork, self.key) and self._reserves(fork) and self._stays(fork)

    def fails(self, steps: Sequence[Step]) -> bool:
        """True if the workload does not reserve quota with these changes; such a trial never ends early."""
        return not self._reserves(self.changed(steps))

    def others(self, steps: Sequence[Step]) -> OtherWorkloads:
        """Return what happens to other workloads until these changes, which work, have admitted the workload."""
        fork, preempted, admitted = self._fork(steps), dict[str, None](), dict[str, None]()
        fork.requeue_inadmissible()
        for _ in range(MOST_CYCLES):
            for decision in fork.run_cycle():
                match decision:
                    case Preempt(other, by=self.key):
                        preempted[other] = None
                    case Admit(other):
                        admitted[other] = None
            if self.key in admitted:
                break
        own = fork.workloads[self.key]
        rivals = {one.key for one in _holders(fork, own.cluster_queue, {pair for pair, _ in held(own)})}
        before = takewhile(lambda other: other != self.key, admitted)
        return OtherWorkloads(tuple(preempted), tuple(other for other in before if other in rivals))

    def changed(self, steps: Sequence[Step]) -> AdmissionSimulator:
        """Return a fork with these changes; it counts as a trial."""
        self.tries += 1
        return self._fork(steps)

    def _fork(self, steps: Sequence[Step]) -> AdmissionSimulator:
        fork = self.rehearsal.fork()
        for step in steps:
            apply_change(fork, self.key, step)
        return fork

    def least(self, steps: Sequence[Step]) -> Steps:
        """Return the changes, each as small as still admits the workload; see `minimal_changes`."""
        return minimal_changes(self, steps)

    def _reserves(self, fork: AdmissionSimulator) -> bool:
        fork.requeue_inadmissible()
        for _ in range(MOST_CYCLES):
            if not self._cycle(fork):
                return self._holds(fork)
            if self._holds(fork):
                return True
        return False

    def _stays(self, fork: AdmissionSimulator) -> bool:
        for _ in range(PROBATION):
            going = self._cycle(fork)
            if not self._holds(fork):
                return False
            if not going:
                break
        return True

    def _cycle(self, fork: AdmissionSimulator) -> bool:
        """Run a cycle; return False if another one would decide nothing."""
        if not fork.session.has_heads:
            return False
        if self.cycles >= self._most_cycles:
            raise TriedEnough
        self.cycles += 1
        decided = fork.run_cycle()
        return fork.session.has_progressed or not all(isinstance(decision, Refuse) for decision in decided)

    def _holds(self, fork: AdmissionSimulator) -> bool:
        workload = fork.workloads.get(self.key)
        return workload is not None and workload.reserved and not workload.finished


def _promises(rehearsal: AdmissionSimulator, key: str) -> bool:
    """True if the next cycle alone would admit the workload, preempt for it, or leave it to a later cycle."""
    entry = examined(rehearsal, key)
    return entry is not None and dominant_blocker(entry) in _PROMISING


def examined(rehearsal: AdmissionSimulator, key: str) -> CycleEntry | None:
    """Return the engine's result for the workload as head of its queue; None if it is in no active queue."""
    entries = rehearsal.session.examine_cycle(rehearsal.now, key)
    return next((entry for entry in entries if entry.request.workload.key == key), None)


FOR_GOOD = (PendingReason.EXCEEDS_MAX, PendingReason.QUOTA, PendingReason.FLAVOR_MISMATCH, PendingReason.TOPOLOGY)
"""Reasons that are permanent if they occur on the empty cluster."""
Refusal = tuple[PendingReason, str]
_PASSING = "node.kubernetes.io/"
"""Prefix of the node controller's taints, which are temporary."""


def repaired(node: Node) -> Node:
    """Return the node as healthy: ready, not cordoned, without the node controller's taints."""
    taints = tuple(taint for taint in node.taints if not taint.key.startswith(_PASSING))
    return replace(node, ready=True, unschedulable=False, taints=taints)


def all_nodes(snapshot: Snapshot, capacity: Capacity) -> tuple[Node, ...]:
    """Return all nodes as healthy if their number is fixed; empty if nodes can be provisioned or none are known."""
    fixed = isinstance(capacity, FixedCapacity) and not len(snapshot.node_pools)
    return tuple(map(repaired, snapshot.nodes.all())) if fixed else ()


class EmptyCluster:
    """A cluster without any work and with healthy nodes, to find workloads that Kueue never admits. Immutable."""

    def __init__(self, snapshot: Snapshot, config: KueueConfig, capacity: Capacity, namespaces: Iterable[str]) -> None:
        """`namespaces` are those of the work to try: manifests rarely contain them."""
        self._cluster = AdmissionSimulator(KueueSession(config), 0)
        self._topologies = bool(all_nodes(snapshot, capacity))
        """False if nodes can be provisioned or none are known: topology domains may be added."""
        self._known: dict[tuple[str, bytes], Refusal | None] = {}
        for name in sorted(set(namespaces)):
            self._cluster.apply(Namespace(name=name))
        for obj in snapshot.objects():
            match obj:
                case Workload() | Job() | Pod():
                    pass
                case Node():
                    self._cluster.apply(repaired(obj))
                case _:
                    self._cluster.apply(obj)
        # Compile the applied objects once for all forks.
        self._cluster.requeue_inadmissible()

    def refusal(self, namespace: str, queue: str, pod_sets: Sequence[PodSet]) -> Refusal | None:
        """Return why Kueue would never admit such a workload, as code and message; None if it would, or if that is
        unknown.
        """
        key = f"{namespace}/{queue}", msgspec.msgpack.encode(pod_sets)
        if key not in self._known:
            self._known[key] = self._asked(namespace, queue, tuple(pod_sets))
        return self._known[key]

    def _asked(self, namespace: str, queue: str, pod_sets: tuple[PodSet, ...]) -> Refusal | None:
        alone = Workload(namespace=namespace, name="asked", uid="asked", queue=queue, created=0, pod_sets=pod_sets)
        cluster = self._cluster.fork()
        cluster.apply(alone)
        entry = examined(cluster, alone.key)
        code = dominant_blocker(entry) if entry is not None else None
        if entry is None or code not in FOR_GOOD or (code is PendingReason.TOPOLOGY and not self._topologies):
            return None
        return code, entry.message


MOST_AHEAD = 50
"""Maximum number of pending workloads that are counted per queue."""
Pair = tuple[str, str]
"""(flavor, resource)"""


class QuotaGap(Struct, frozen=True, kw_only=True):
    """A flavor with too little quota for a workload: the shortage of each resource, and the total request."""

    flavor: str
    short: Mapping[str, int]
    wanted: Mapping[str, int]


def gaps(session: KueueSession, entry: CycleEntry) -> list[QuotaGap]:
    """List the flavors that match the workload's pods and have too little quota, the smallest shortage first."""
    return _gaps(session, entry, ())


def gaps_in_turn(session: KueueSession, entry: CycleEntry) -> list[QuotaGap]:
    """Return `gaps`; if quota suffices for the workload alone, those left after the workloads before it.

    If it suffices after these, too, the pending workloads in other queues of its cohort tree count as well.
    """
    before, others = _rivals(session, entry)
    return gaps(session, entry) or _gaps(session, entry, before) or _gaps(session, entry, (*before, *others))


def _gaps(session: KueueSession, entry: CycleEntry, first: Sequence[Workload]) -> list[QuotaGap]:
    """Return the shortage of each flavor after these workloads reserved their quota."""
    tree, node = session.usage_tree, entry.rules.node
    wanted = dict(_wanted(entry))
    found = []
    for flavor in dict.fromkeys(flavor for flavor, _ in wanted):
        of_flavor = {resource: amount for (name, resource), amount in wanted.items() if name == flavor}
        short = {
            resource: needed - available
            for resource, amount in of_flavor.items()
            if (needed := amount + _asked(first, resource))
            > (available := max(0, tree.available(node, tree.tree.numbers[flavor, resource])))
        }
        if short:
            found.append(QuotaGap(flavor=flavor, short=short, wanted=of_flavor))
    return sorted(found, key=lambda gap: (len(gap.short), sum(gap.short.values()), gap.flavor))


def amounts(session: KueueSession, entry: CycleEntry, gap: QuotaGap) -> list[Mapping[str, int]]:
    """Return by how much to raise each resource that is short: several amounts to try, without duplicates.

    These are the shortage; the total request; that plus the requests before it in its queue; that plus all pending
    requests of its cohort tree, since other workloads may be admitted first.
    """
    before, others = _rivals(session, entry)
    taking_first = ((), before, (*before, *others))
    found: list[Mapping[str, int]] = [
        gap.short,
        *(
            {resource: gap.wanted[resource] + _asked(first, resource) for resource in gap.short}
            for first in taking_first
        ),
    ]
    return [one for place, one in enumerate(found) if one not in found[:place]]


def _rivals(session: KueueSession, entry: CycleEntry) -> tuple[Sequence[Workload], Sequence[Workload]]:
    """Return the pending workloads before it in its queue, and those in the other queues of its cohort tree."""
    tree, own = session.usage_tree.tree, entry.rules.name
    before = tuple(takewhile(lambda one: one.key != entry.request.workload.key, _waiting(session, own)))
    names = [tree.names[one] for one in tree.subtree_queues(tree.root(entry.rules.node))]
    return before, tuple(one for name in names if name != own for one in _waiting(session, name))


def _asked(workloads: Iterable[Workload], resource: str) -> int:
    """Return the total request of all pods of these workloads."""
    return sum(pod_set.requests.get(resource, 0) for one in workloads for pod_set in one.pod_sets)


def _waiting(session: KueueSession, queue: str) -> list[Workload]:
    """Return the first pending workloads of a queue."""
    return [place.workload for place in session.pending_workloads(queue)[:MOST_AHEAD]]


def _wanted(entry: CycleEntry) -> Iterator[tuple[Pair, int]]:
    """Yield the total request of all pod sets in each flavor that matches them."""
    total: dict[Pair, int] = {}
    unsuited: set[str] = set()
    for request in entry.request.pod_sets:
        amounts: dict[str, int] = dict(request.requests_for(request.count))
        if entry.rules.covers_pods:
            amounts["pods"] = request.count
        for resource, amount in amounts.items():
            group = entry.rules.group_of.get(resource)
            for flavor in group.flavors if group is not None and amount else ():
                total[flavor, resource] = total.get((flavor, resource), 0) + amount
    for result in entry.assignment.pod_sets:
        for search in result.searches:
            unsuited |= {
                n.flavor
                for n in search.results
                if n.mode == FlavorAssignmentMode.NO_FIT and n.granular_reason == "NoMatchingFlavor"
            }
    yield from ((pair, amount) for pair, amount in total.items() if pair[0] not in unsuited)


MOST_ENDS = 40
"""Maximum number of workloads whose end is tried one by one."""
MOST_TOGETHER = 12
"""Maximum number of workloads that are ended together."""


def ends(trial: ChangeTrial, entry: CycleEntry) -> Iterator[Steps]:
    """Yield other workloads whose end admits the pending one: up to three alone, the smallest first; else a few
    together.
    """
    candidates = list(islice(_candidates(trial, entry), MOST_ENDS))
    largest = sorted(candidates, key=lambda w: -w.gpus)[:MOST_TOGETHER]
    yield from endings(trial, [one.key for one in candidates], [one.key for one in largest])


def _candidates(trial: ChangeTrial, entry: CycleEntry) -> Iterator[Workload]:
    """Yield workloads of its cohort tree with quota it could use, smallest first; then those ahead in its queue."""
    name = entry.rules.name
    holders = _holders(trial.rehearsal, name, set(entry.rules.queue.quotas()))
    yield from sorted(holders, key=lambda w: (w.gpus, w.cluster_queue != name, w.priority, w.key))
    for place in trial.rehearsal.session.pending_workloads(name):
        if place.workload.key == trial.key:
            return
        yield place.workload


def _holders(rehearsal: AdmissionSimulator, queue: str, pairs: Set[Pair]) -> Iterator[Workload]:
    """Yield the workloads in the cohort tree of a ClusterQueue that hold any of these quotas."""
    tree = rehearsal.session.usage_tree.tree
    node = tree.queues.get(queue)
    names = {tree.names[one] for one in tree.subtree_queues(tree.root(node))} if node is not None else set()
    for workload in rehearsal.workloads.all():
        holds = workload.reserved and not workload.finished and workload.cluster_queue in names
        if holds and any(pair in pairs for pair, _ in held(workload)):
            yield workload


def raises(trial: ChangeTrial, entry: CycleEntry, found: Sequence[QuotaGap]) -> Iterator[Steps]:
    """Yield quotas or limits to raise, each as little as admits the workload: of its queue, cohorts or lenders."""
    for kind, name, limit in _limits(trial, entry):
        tried = (trial.least(steps) for gap in found for steps in raised(trial, entry, kind, name, limit, gap))
        yield next((steps for steps in tried if steps), ())


def raised(
    trial: ChangeTrial, entry: CycleEntry, kind: Owner, name: str, limit: Limit, gap: QuotaGap
) -> Iterator[list[Step]]:
    """Yield increases of one limit of a ClusterQueue or Cohort (`name`), by each of the `amounts` to try for a gap."""
    for more in amounts(trial.rehearsal.session, entry, gap):
        steps: list[Step] = [
            RaiseLimit(kind=kind, name=name, limit=limit, flavor=gap.flavor, resource=resource, by=amount)
            for resource, amount in more.items()
            if _limited(trial, kind, name, limit, gap.flavor, resource)
        ]
        if steps:
            yield steps


def _limits(trial: ChangeTrial, entry: CycleEntry) -> Iterator[tuple[Owner, str, Limit]]:
    """Yield the limits that may block it: from its own queue upwards, then of its lenders."""
    tree = trial.rehearsal.session.usage_tree.tree
    yield "ClusterQueue", entry.rules.name, "borrowingLimit"
    yield "ClusterQueue", entry.rules.name, "nominalQuota"
    path = tree.paths[entry.rules.node] if entry.rules.node >= 0 else ()
    for node in path:
        yield "Cohort", tree.names[node], "borrowingLimit"
        yield "Cohort", tree.names[node], "nominalQuota"
    for node in path:
        for member in tree.queue_children[node]:
            if tree.names[member] != entry.rules.name:
                yield "ClusterQueue", tree.names[member], "lendingLimit"
        for member in tree.children[node]:
            yield "Cohort", tree.names[member], "lendingLimit"


def _limited(trial: ChangeTrial, kind: Owner, name: str, limit: Limit, flavor: str, resource: str) -> bool:
    """True if there is such a limit; a quota can always be added."""
    objects = trial.rehearsal.session.compiled_config.objects
    owner = objects.cluster_queues.get(name) if kind == "ClusterQueue" else objects.cohorts.get(name)
    quota = owner.quotas().get((flavor, resource)) if owner is not None else None
    match limit:
        case "nominalQuota":
            return kind == "Cohort" or quota is not None
        case "borrowingLimit":
            return quota is not None and quota.borrowing_limit is not None
        case "lendingLimit":
            return quota is not None and quota.lending_limit is not None


MOST_QUEUES = 8
MOST_PLACES = 8
MOST_NODES = 16


def smaller(trial: ChangeTrial, entry: CycleEntry, found: Sequence[QuotaGap]) -> Iterator[Steps]:
    """Yield smaller requests that admit the workload: fewer pods (or a lower minCount), or less per pod."""
    pod_sets = trial.rehearsal.workloads[trial.key].pod_sets
    if not pod_sets:
        return
    largest = max(pod_sets, key=lambda p: (accelerators(p.requests), sum(p.requests.values())))
    if largest.count > 1 and largest.min_count is None:
        yield trial.least((FewerPods(pod_set=largest.name, count=1, was=largest.count),))
    for pod_set in pod_sets:
        if pod_set.min_count is not None and pod_set.min_count > 1:
            yield trial.least((LowerGang(gang=pod_set.name, field="minCount", count=1, was=pod_set.min_count),))
    short = {resource for gap in found for resource in gap.short}
    steps: list[Step] = []
    for resource, amount in largest.template.requests.items():
        covered = resource in entry.rules.group_of
        least = 1 if covered else 0
        if amount > least and (not covered or resource in short or (is_counted(resource) and not short)):
            steps.append(AskLess(pod_set=largest.name, resource=resource, amount=least, was=amount))
    if steps:
        yield trial.least(steps)


def priorities(trial: ChangeTrial) -> Iterator[Steps]:
    """Yield the lowest priority that admits the workload, and the lowest WorkloadPriorityClass of at least that."""
    step = _first_of_all(trial)
    least = trial.least((step,)) if step is not None else ()
    for found in least:
        assert isinstance(found, UsePriority)
        yield (_classed(trial, found),)


def _classed(trial: ChangeTrial, step: UsePriority) -> UsePriority:
    high = sorted((one.value, one.name) for one in trial.classes if one.value >= step.priority)
    works = ((value, name) for value, name in high if trial.works((UsePriority(priority=value, was=step.was),)))
    value, name = next(works, (0, ""))
    return replace(step, priority_class=name, class_priority=value)


def _first_of_all(trial: ChangeTrial) -> UsePriority | None:
    """Return a priority above all others; None if the workload has that."""
    was = trial.rehearsal.workloads[trial.key].priority
    highest = max(workload.priority for workload in trial.rehearsal.workloads.all()) + 1
    return UsePriority(priority=highest, was=was) if highest > was else None


def nodes(trial: ChangeTrial, entry: CycleEntry) -> Iterator[Steps]:
    """Yield the fewest additional nodes that admit the workload, like an existing one in its topology domain."""
    setup = trial.rehearsal.session.compiled_config
    for flavor in (f for group in entry.rules.groups for f in group.flavors if f in setup.topologies):
        domains = setup.topologies[flavor]
        siblings: dict[object, str] = {}
        for name, leaf in sorted(domains.leaf_of.items()):
            siblings.setdefault(domains.values[domains.leaf_domains[leaf]][:-1], name)
        best: Steps = ()
        for like in islice(siblings.values(), MOST_PLACES):
            most = size(best[0]) - 1 if best else MOST_NODES
            best = next(filter(None, (trial.least(steps) for steps in _growing(flavor, like, most))), best)
        if best:
            yield best
            return


def _growing(flavor: str, like: str, most: int) -> Iterator[Steps]:
    """Yield increasing numbers of nodes; of too many, other workloads may use some first."""
    counts = [*takewhile(lambda count: count < most, (2, 4, 8)), most] if most else []
    yield from ((AddNodesStep(flavor=flavor, like=like, count=count),) for count in counts)


def resumptions(trial: ChangeTrial) -> Iterator[Steps]:
    """Yield what to resume if the workload or its queue is stopped, or how its queue could select its namespace."""
    steps = _stopped_objects(trial)
    if steps:
        yield trial.least(steps)


def _stopped_objects(trial: ChangeTrial) -> list[Step]:
    objects = trial.rehearsal.session.compiled_config.objects
    workload = trial.rehearsal.workloads[trial.key]
    local_queue = objects.local_queues.get(workload.local_queue)
    queue = objects.cluster_queues.get(local_queue.cluster_queue) if local_queue is not None else None
    steps: list[Step] = []
    if not workload.active:
        steps.append(Resume(kind="Workload", name=workload.key))
    if local_queue is not None and local_queue.stop_policy is not StopPolicy.NONE:
        steps.append(Resume(kind="LocalQueue", name=local_queue.key))
    if queue is not None and queue.stop_policy is not StopPolicy.NONE:
        steps.append(Resume(kind="ClusterQueue", name=queue.name))
    if queue is not None and not trial.rehearsal.session.compiled_config.matches_namespace(queue, workload.namespace):
        steps.append(AdmitNamespace(cluster_queue=queue.name, namespace=workload.namespace))
    return steps


def several(trial: ChangeTrial, entry: CycleEntry | None, found: Sequence[QuotaGap]) -> Iterator[Steps]:
    """Yield changes of several kinds that only together admit the workload: resume, priority, quota."""
    opened = _stopped_objects(trial)
    if entry is None:
        yield from _changes_after_resuming(trial, opened)
        return
    first = _first_of_all(trial)
    name = entry.rules.name
    quotas = [steps for gap in found for steps in raised(trial, entry, "ClusterQueue", name, "nominalQuota", gap)] or [
        []
    ]
    for steps in quotas:
        whole = [*opened, *([first] if first is not None else []), *steps]
        least = trial.least(whole) if len(whole) > 1 else ()
        if least:
            yield least
            return


def _changes_after_resuming(trial: ChangeTrial, opened: Sequence[Step]) -> Iterator[Steps]:
    """Try further changes that are needed once stopped objects are resumed: other workloads end, or more quota."""
    if not opened:
        return
    beyond = ChangeTrial(trial.changed(opened), trial.key, trial.classes)
    entry = examined(beyond.rehearsal, trial.key)
    if entry is None:
        return
    found = gaps_in_turn(beyond.rehearsal.session, entry)
    for tried in (ends(beyond, entry), raises(beyond, entry, found)):
        more = next(filter(None, tried), ())
        if more:
            yield trial.least((*opened, *more))


def moves(trial: ChangeTrial) -> Iterator[Steps]:
    """Yield the first other LocalQueue of its namespace that would admit the workload."""
    workload = trial.rehearsal.workloads[trial.key]
    queues = trial.rehearsal.session.compiled_config.objects.local_queues.values()
    near = [q.name for q in queues if q.namespace == workload.namespace and q.name != workload.queue]
    for name in sorted(near)[:MOST_QUEUES]:
        if trial.works((MoveTo(name),)):
            yield (MoveTo(name),)
            return


MOST_TAINTS = 8


def topologies(trial: ChangeTrial, entry: CycleEntry) -> Iterator[Steps]:
    """Yield a wider topology level that admits the workload; if no topology has its level, an existing one, or none."""
    setup = trial.rehearsal.session.compiled_config
    for pod_set in trial.rehearsal.workloads[trial.key].pod_sets:
        asked = pod_set.topology
        if asked is None or not (level := asked.required or asked.preferred):
            continue
        domains = [d for flavor, d in setup.topologies.items() if level in d.levels]
        if not domains:
            there = dict.fromkeys(one for d in setup.topologies.values() for one in d.levels if one != HOSTNAME)
            others = [
                UseTopology(pod_set=pod_set.name, required=one)
                if asked.required
                else UseTopology(pod_set=pod_set.name, preferred=one)
                for one in there
            ]
            others.append(UseTopology(pod_set=pod_set.name))
            yield next(((step,) for step in others if trial.works((step,))), ())
        if not asked.required:
            continue
        for domain in domains[:1]:
            above = domain.levels[: domain.levels.index(asked.required)]
            looser = [UseTopology(pod_set=pod_set.name, required=level) for level in reversed(above)]
            looser.append(UseTopology(pod_set=pod_set.name, preferred=asked.required))
            looser.append(UseTopology(pod_set=pod_set.name))
            yield next(((step,) for step in looser if trial.works((step,))), ())


def allowing(trial: ChangeTrial, entry: CycleEntry) -> Iterator[Steps]:
    """Yield tolerations to add and node selector labels to remove with which the workload's pods match a flavor."""
    setup = trial.rehearsal.session.compiled_config
    pod_sets = trial.rehearsal.workloads[trial.key].pod_sets
    for name in dict.fromkeys(flavor for group in entry.rules.groups for flavor in group.flavors):
        flavor = setup.flavors.get(name)
        if flavor is None:
            continue
        steps: list[Step] = []
        for pod_set in pod_sets:
            steps += new_tolerations(pod_set, flavor.node_taints, flavor.tolerations)
            steps += [
                DropSelector(pod_set=pod_set.name, label=label)
                for label, value in pod_set.template.node_selector.items()
                if flavor.node_labels.get(label, value) != value
            ]
        if steps:
            yield trial.least(steps)
        if name in setup.topologies:
            yield from _suiting_nodes(trial, flavor)


def _suiting_nodes(trial: ChangeTrial, flavor: ResourceFlavor) -> Iterator[Steps]:
    """Try `allowing` for the nodes of a topology, which admission checks: taints, selectors, or both."""
    setup = trial.rehearsal.session.compiled_config
    known_nodes = (setup.objects.nodes.get(name) for name in setup.topologies[flavor.name].leaf_of)
    taints = [taint for node in known_nodes if node is not None for taint in node.taints]
    tolerated: list[Step] = []
    dropped: list[Step] = []
    for pod_set in trial.rehearsal.workloads[trial.key].pod_sets:
        tolerated += list(dict.fromkeys(new_tolerations(pod_set, taints, flavor.tolerations)))[:MOST_TAINTS]
        dropped += [
            DropSelector(pod_set=pod_set.name, label=label)
            for label in pod_set.template.node_selector
            if label not in flavor.node_labels
        ]
    alone = [trial.least(steps) for steps in (tolerated, dropped) if steps]
    yield from alone
    if tolerated and dropped and not any(alone):
        yield trial.least((*tolerated, *dropped))
