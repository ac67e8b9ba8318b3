"""All anti-patterns of a cluster, those in manifests included, the most expensive first.

All anti-patterns of a cluster, the most expensive first.

Anti-patterns in manifests: the lint findings that waste GPUs, with their cost.
"""

from collections.abc import Iterator, Mapping, Sequence

from gpuconsole.insight.antipatterns import patterns as contention
from gpuconsole.insight.antipatterns import patterns as usage
from gpuconsole.insight.antipatterns.patterns import DAY_HOURS, AntiPattern, AntiPatternCode
from gpuconsole.insight.cost import unit_hourly
from gpuconsole.insight.data_gaps import PLACES, QUOTA
from gpuconsole.insight.index.demand import quota_accelerators, quota_unit
from gpuconsole.insight.index.gpu_map import gpu_rows
from gpuconsole.insight.linting import LintEngines, LintFacts, LintFinding, lint
from gpuconsole.insight.linting.facts import OPEN, placed_by
from gpuconsole.model.cluster import Namespace, Node, Pod, PriorityClass
from gpuconsole.model.device_units import WHOLE_GPU, added, in_one_unit
from gpuconsole.model.events import HistoryEvent
from gpuconsole.model.job import Job, JobPhase
from gpuconsole.model.objects import Object
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
        *find(snapshot, engines, prices),
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


CODES = {
    "cohort-cycle": AntiPatternCode.COHORT_CYCLE,
    "unreachable-quota": AntiPatternCode.UNREACHABLE_QUOTA,
    "quota-beyond-nodes": AntiPatternCode.UNREACHABLE_QUOTA,
    "never-fits-quota": AntiPatternCode.NEVER_FITS,
    "never-fits-flavor": AntiPatternCode.NEVER_FITS,
    "never-fits-topology": AntiPatternCode.NEVER_FITS,
    "never-fits-node": AntiPatternCode.NEVER_FITS,
    "never-fits-cluster": AntiPatternCode.NEVER_FITS,
    "resource-not-covered": AntiPatternCode.NEVER_FITS,
    "mig-profile-not-covered": AntiPatternCode.NEVER_FITS,
    "missing-priority-class": AntiPatternCode.MISSING_PRIORITY_CLASS,
}
_TABLES = {"ClusterQueue": "cluster_queues", "Cohort": "cohorts", "ResourceFlavor": "flavors", "Workload": "workloads"}


def find(snapshot: Snapshot, engines: LintEngines, prices: Prices) -> Iterator[AntiPattern]:
    """Find the lint findings about unfinished work that are anti-patterns."""
    alive = [obj for obj in snapshot.objects() if not _over(obj)]
    for finding in lint(LintFacts(alive, engines)):
        # A node with a MIG profile without quota is only a warning: no workload is refused because of it.
        if finding.code in CODES and not finding.object.startswith("Node/"):
            yield _pattern(snapshot, finding, prices)


def _over(obj: Object) -> bool:
    match obj:
        case Workload():
            return obj.finished
        case Job():
            return obj.phase in (JobPhase.SUCCEEDED, JobPhase.FAILED)
        case Pod():
            return obj.done
        case _:
            return False


def _pattern(snapshot: Snapshot, finding: LintFinding, prices: Prices) -> AntiPattern:
    kind, _, name = finding.object.partition("/")
    gpus, unit = _stranded(snapshot, finding, name)
    return AntiPattern(
        code=CODES[finding.code],
        subject=name,
        table=_TABLES.get(kind, "jobs" if name.count("/") else ""),
        text=f"{finding.object}: {finding.problem}",
        evidence=finding.evidence,
        gpus=gpus,
        unit=unit,
        cost_per_day=gpus * unit_hourly(snapshot, unit, prices) * DAY_HOURS if gpus else 0.0,
        fix=finding.fix,
    )


def _stranded(snapshot: Snapshot, finding: LintFinding, name: str) -> tuple[int, str]:
    """Accelerators that no workload can get because their quota is unreachable, and their unit."""
    queue = snapshot.cluster_queues.get(name)
    if finding.code != "unreachable-quota" or queue is None:
        return 0, WHOLE_GPU.noun
    counted = quota_accelerators(snapshot)
    quotas = [(resource, quota.nominal) for (_, resource), quota in queue.quotas().items() if resource in counted]
    wanted = added(*({quota_unit(snapshot, resource): nominal} for resource, nominal in quotas))
    there = added(*(row.units for row in gpu_rows(snapshot)))
    return in_one_unit({unit: min(nominal, there.get(unit, 0)) for unit, nominal in wanted.items()})
