"""Search for the smallest change that gets a workload admitted: quota, priority, placement rules, nodes.

Each search is an iterator that yields no steps if no change of its kind works. `gaps` is the quota that the workload
lacks, flavor by flavor: the starting point of `ends` and `raises`, which give it more quota. The other searches change
the workload itself, the nodes, or stopped objects.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, takewhile

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.insight.index.demand import held
from gpuconsole.insight.unblock.admission_trial import ChangeTrial, examined
from gpuconsole.insight.unblock.changes import (
    AddNodesStep,
    AdmitNamespace,
    AskLess,
    DropSelector,
    End,
    FewerPods,
    Limit,
    LowerGang,
    MoveTo,
    Owner,
    RaiseLimit,
    Resume,
    Step,
    Steps,
    Tolerate,
    UsePriority,
    UseTopology,
    size,
)
from gpuconsole.model.devices import accelerators, is_counted
from gpuconsole.model.labels import HOSTNAME
from gpuconsole.model.queues import ClusterQueue, ResourceFlavor, StopPolicy
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.assignment import FlavorAssignmentMode
from gpuconsole.scheduling.kueue.entry import CycleEntry
from gpuconsole.scheduling.kueue.session import KueueSession

MOST_AHEAD = 50
"""Limit on the pending workloads that are counted per queue."""
Pair = tuple[str, str]
"""(flavor, resource)"""


class QuotaGap(Struct, frozen=True, kw_only=True):
    """A flavor without enough quota: the shortage of each resource, and its total request."""

    flavor: str
    short: Mapping[str, int]
    wanted: Mapping[str, int]


def gaps(session: KueueSession, entry: CycleEntry) -> list[QuotaGap]:
    """List the flavors that match the pods and have too little quota, the smallest shortage first."""
    return _gaps(session, entry, ())


def gaps_in_turn(session: KueueSession, entry: CycleEntry) -> list[QuotaGap]:
    """Return `gaps`; if there is enough quota for it alone, the gaps after the workloads before it in its queue.

    If there is enough after these, too, the pending workloads in other queues of its cohort tree count as well.
    """
    before, others = _rivals(session, entry)
    return gaps(session, entry) or _gaps(session, entry, before) or _gaps(session, entry, (*before, *others))


def _gaps(session: KueueSession, entry: CycleEntry, first: Sequence[Workload]) -> list[QuotaGap]:
    """Return the shortage of each flavor after these workloads reserved their quota."""
    tree, node = session.tree, entry.rules.node
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
    """Return the amounts to try of each resource that is short, without duplicates.

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
    tree, own = session.tree.tree, entry.rules.name
    before = tuple(takewhile(lambda one: one.key != entry.request.workload.key, _waiting(session, own)))
    names = [tree.names[one] for one in tree.subtree_queues(tree.root(entry.rules.node))]
    return before, tuple(one for name in names if name != own for one in _waiting(session, name))


def _asked(workloads: Iterable[Workload], resource: str) -> int:
    """Return the total request of all pods of these workloads."""
    return sum(pod_set.requests.get(resource, 0) for one in workloads for pod_set in one.pod_sets)


def _waiting(session: KueueSession, queue: str) -> list[Workload]:
    """Return the first pending workloads of a queue."""
    return [place.workload for place in session.pending(queue)[:MOST_AHEAD]]


def _wanted(entry: CycleEntry) -> Iterator[tuple[Pair, int]]:
    """Yield the total request of all pod sets in each flavor that matches them."""
    total: dict[Pair, int] = {}
    unsuited: set[str] = set()
    for request in entry.request.pod_sets:
        amounts: dict[str, int] = dict(request.scaled(request.count))
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
                for n in search.noted
                if n.mode == FlavorAssignmentMode.NO_FIT and n.cause == "NoMatchingFlavor"
            }
    yield from ((pair, amount) for pair, amount in total.items() if pair[0] not in unsuited)


def flavors_of(queue: ClusterQueue) -> set[Pair]:
    """Return all (flavor, resource) that a ClusterQueue covers."""
    return set(queue.quotas())


MOST_ENDS = 40
"""Limit on workloads that are tried one by one."""
MOST_TOGETHER = 12
"""Limit on workloads that are ended together."""
SHOWN_ENDS = 3


def ends(trial: ChangeTrial, entry: CycleEntry) -> Iterator[Steps]:
    """Try the end of other workloads: up to three alone, the smallest first; else a few together."""
    candidates = list(islice(_candidates(trial, entry), MOST_ENDS))
    alone = 0
    for other in candidates:
        if trial.works((End(other.key),)):
            alone += 1
            yield (End(other.key),)
            if alone == SHOWN_ENDS:
                return
        else:
            # The caller may do other work in between, or end the search.
            yield ()
    if not alone:
        yield from _together(trial, candidates)


def _candidates(trial: ChangeTrial, entry: CycleEntry) -> Iterator[Workload]:
    """Yield workloads of its cohort tree with quota it could use, smallest first; then those ahead in its queue."""
    session, rules = trial.rehearsal.session, entry.rules
    pairs = flavors_of(rules.queue)
    tree = session.tree.tree
    names = {tree.names[node] for node in tree.subtree_queues(tree.root(rules.node))} if rules.node >= 0 else set()
    holders = [
        workload
        for workload in trial.rehearsal.workloads.values()
        if workload.reserved
        and not workload.finished
        and workload.cluster_queue in names
        and any(pair in pairs for pair, _ in held(workload))
    ]
    yield from sorted(holders, key=lambda w: (w.gpus, w.cluster_queue != rules.name, w.priority, w.key))
    for place in session.pending(rules.name):
        if place.workload.key == trial.key:
            return
        yield place.workload


def _together(trial: ChangeTrial, candidates: Sequence[Workload]) -> Iterator[Steps]:
    """Try to end several workloads, the largest first, until that is enough; then leave out unneeded ones."""
    chosen: list[Step] = []
    for other in sorted(candidates, key=lambda w: -w.gpus)[:MOST_TOGETHER]:
        chosen.append(End(other.key))
        if len(chosen) > 1 and trial.works(chosen):
            yield trial.least(chosen)
            return


def raises(trial: ChangeTrial, entry: CycleEntry, found: Sequence[QuotaGap]) -> Iterator[Steps]:
    """Try higher quotas or limits of its queue, its cohorts or its lenders, each raised as little as is enough."""
    for kind, name, limit in _limits(trial, entry):
        tried = (trial.least(steps) for gap in found for steps in raised(trial, entry, kind, name, limit, gap))
        yield next((steps for steps in tried if steps), ())


def raised(
    trial: ChangeTrial, entry: CycleEntry, kind: Owner, name: str, limit: Limit, gap: QuotaGap
) -> Iterator[list[Step]]:
    """Raise by increasing amounts until that is enough."""
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
    tree = trial.rehearsal.session.tree.tree
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
    objects = trial.rehearsal.session.setup.objects
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
    """Try smaller requests: fewer pods (or a lower minCount) of the largest pod set, or a smaller request per pod."""
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
    """Try to find the lowest priority that is enough, and the lowest WorkloadPriorityClass with at least that."""
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
    highest = max(workload.priority for workload in trial.rehearsal.workloads.values()) + 1
    return UsePriority(priority=highest, was=was) if highest > was else None


def nodes(trial: ChangeTrial, entry: CycleEntry) -> Iterator[Steps]:
    """Try the fewest additional nodes of a flavor, like an existing one in its topology domain, that fit its pods."""
    setup = trial.rehearsal.session.setup
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
    """Try changes for obstacles other than quota: a stopped workload or queue, or a namespace that is not selected."""
    steps = _stopped_objects(trial)
    if steps:
        yield trial.least(steps)


def _stopped_objects(trial: ChangeTrial) -> list[Step]:
    objects = trial.rehearsal.session.setup.objects
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
    if queue is not None and not trial.rehearsal.session.setup.matches_namespace(queue, workload.namespace):
        steps.append(AdmitNamespace(cluster_queue=queue.name, namespace=workload.namespace))
    return steps


def several(trial: ChangeTrial, entry: CycleEntry | None, found: Sequence[QuotaGap]) -> Iterator[Steps]:
    """Try changes of several kinds together, for a workload with several obstacles: resume, priority, quota."""
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
    """Try the other LocalQueues of its namespace."""
    workload = trial.rehearsal.workloads[trial.key]
    queues = trial.rehearsal.session.setup.objects.local_queues.values()
    near = [q.name for q in queues if q.namespace == workload.namespace and q.name != workload.queue]
    for name in sorted(near)[:MOST_QUEUES]:
        if trial.works((MoveTo(name),)):
            yield (MoveTo(name),)
            return


KEEPING = ("NoSchedule", "NoExecute")
"""Taint effects that exclude pods."""
MOST_TAINTS = 8


def topologies(trial: ChangeTrial, entry: CycleEntry) -> Iterator[Steps]:
    """Try the next wider topology levels; for a level that no topology has, the widest existing one."""
    setup = trial.rehearsal.session.setup
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
    """Try tolerations to add and node selector labels to remove so that its pods match a flavor."""
    setup = trial.rehearsal.session.setup
    pod_sets = trial.rehearsal.workloads[trial.key].pod_sets
    for name in dict.fromkeys(flavor for group in entry.rules.groups for flavor in group.flavors):
        flavor = setup.flavors.get(name)
        if flavor is None:
            continue
        steps: list[Step] = []
        for pod_set in pod_sets:
            template = pod_set.template
            known = (*template.tolerations, *flavor.tolerations)
            steps += [
                Tolerate(pod_set=pod_set.name, key=taint.key, value=taint.value, effect=taint.effect)
                for taint in flavor.node_taints
                if taint.effect in KEEPING and not any(t.tolerates(taint) for t in known)
            ]
            steps += [
                DropSelector(pod_set=pod_set.name, label=label)
                for label, value in template.node_selector.items()
                if flavor.node_labels.get(label, value) != value
            ]
        if steps:
            yield trial.least(steps)
        if name in setup.topologies:
            yield from _suiting_nodes(trial, flavor)


def _suiting_nodes(trial: ChangeTrial, flavor: ResourceFlavor) -> Iterator[Steps]:
    """Try `allowing` for the nodes of a topology, which admission checks: taints, selectors, or both."""
    setup = trial.rehearsal.session.setup
    known_nodes = (setup.objects.nodes.get(name) for name in setup.topologies[flavor.name].leaf_of)
    taints = [taint for node in known_nodes if node is not None for taint in node.taints]
    tolerated: list[Step] = []
    dropped: list[Step] = []
    for pod_set in trial.rehearsal.workloads[trial.key].pod_sets:
        template = pod_set.template
        known = (*template.tolerations, *flavor.tolerations)
        new = [
            Tolerate(pod_set=pod_set.name, key=taint.key, value=taint.value, effect=taint.effect)
            for taint in taints
            if taint.effect in KEEPING and not any(one.tolerates(taint) for one in known)
        ]
        tolerated += list(dict.fromkeys(new))[:MOST_TAINTS]
        dropped += [
            DropSelector(pod_set=pod_set.name, label=label)
            for label in template.node_selector
            if label not in flavor.node_labels
        ]
    alone = [trial.least(steps) for steps in (tolerated, dropped) if steps]
    yield from alone
    if tolerated and dropped and not any(alone):
        yield trial.least((*tolerated, *dropped))
