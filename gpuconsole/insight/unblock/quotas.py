"""Search for the smallest change that gives a workload more quota: end other workloads, or raise a quota or limit."""

from collections.abc import Iterator, Sequence
from itertools import islice

from gpuconsole.insight.demand import held
from gpuconsole.insight.unblock.needs import QuotaGap, amounts, flavors_of
from gpuconsole.insight.unblock.steps import End, Limit, Owner, RaiseLimit, Step, Steps
from gpuconsole.insight.unblock.trial import ChangeTrial
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.entry import CycleEntry

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
