"""All anti-patterns of a cluster, the most expensive first."""

from collections.abc import Mapping, Sequence

from gpuconsole.insight.antipatterns import contention, manifest_findings, usage
from gpuconsole.insight.antipatterns.pattern import AntiPattern, AntiPatternCode
from gpuconsole.insight.data_gaps import PLACES, QUOTA
from gpuconsole.insight.linting import LintEngines
from gpuconsole.insight.linting.facts import OPEN, placed_by
from gpuconsole.model.cluster import Namespace, Node, Pod, PriorityClass
from gpuconsole.model.events import HistoryEvent
from gpuconsole.model.job import Job
from gpuconsole.model.prices import Prices
from gpuconsole.model.queues import (
    ClusterQueue,
    Cohort,
    LocalQueue,
    ResourceFlavor,
    Topology,
    WorkloadPriorityClass,
)
from gpuconsole.model.snapshot import Snapshot, Visibility
from gpuconsole.model.workloads import Workload
from gpuconsole.sim.policy import SimPolicy

_RANK = {code: rank for rank, code in enumerate(AntiPatternCode)}
RESTS_ON: Mapping[AntiPatternCode, tuple[type, ...]] = {
    AntiPatternCode.DEADLOCK: (Workload, *PLACES),
    AntiPatternCode.MONOPOLY: QUOTA,
    AntiPatternCode.FRAGMENTATION: PLACES,
    AntiPatternCode.NEVER_FITS: (ClusterQueue, Cohort, ResourceFlavor, Topology, Node),
    AntiPatternCode.UNREACHABLE_QUOTA: (ClusterQueue, LocalQueue, Cohort, ResourceFlavor, Namespace, Node),
    AntiPatternCode.MISSING_PRIORITY_CLASS: (PriorityClass, WorkloadPriorityClass),
}
"""Kinds that need every object to be visible: otherwise a finding may be false."""
_REQUIRED_ENGINE: Mapping[AntiPatternCode, tuple[type, ...]] = {
    AntiPatternCode.THRASH: (HistoryEvent,),
    AntiPatternCode.NEVER_FITS: (LocalQueue,),
}
"""Kinds whose findings are correct even if other objects are not visible."""


def antipatterns(
    snapshot: Snapshot, prices: Prices, history: Sequence[HistoryEvent] = (), engines: LintEngines = OPEN
) -> tuple[AntiPattern, ...]:
    """Find all anti-patterns, the most expensive first, those without cost by kind. `history`: oldest line first.

    Kinds that need objects that are not visible are skipped (see `unchecked_kinds`).
    """
    found = [
        *contention.find_contention(snapshot, prices, history),
        *usage.find_unused(snapshot, prices),
        *manifest_findings.find(snapshot, engines, prices),
    ]
    found = [one for one in found if snapshot.seen.all_of(*RESTS_ON.get(one.code, ()))]
    return tuple(sorted(found, key=lambda one: (-one.cost_per_day, _RANK[one.code], one.subject, one.text)))


def unchecked_kinds(seen: Visibility) -> tuple[str, ...]:
    """List the kinds that were skipped, wholly or in part, with the missing permissions."""
    codes: dict[tuple[str, ...], list[str]] = {}
    for code in AntiPatternCode:
        if lacking := seen.missing_reasons(*RESTS_ON.get(code, ()), *_REQUIRED_ENGINE.get(code, ())):
            codes.setdefault(lacking, []).append(code)
    said = [f"{', '.join(group)}: {'; '.join(lacking)}" for lacking, group in codes.items()]
    unseen = seen.missing_reasons(Job, Workload, Pod)
    return (*said, *([f"findings about other workloads: {'; '.join(unseen)}"] if unseen else ()))


def engines_of(policy: SimPolicy) -> LintEngines:
    """Return the schedulers and the Kueue configuration that lint checks the manifests against."""
    placement = placed_by(policy.placement)
    return LintEngines(
        # A cluster in which kube-scheduler is assumed may have other schedulers as well.
        placement="" if placement == "kube-scheduler" else placement,
        kueue=policy.kueue,
        unqueued=policy.kueue is None,
        capacity=policy.capacity,
    )
