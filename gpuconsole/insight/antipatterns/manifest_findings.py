"""Anti-patterns in manifests: the lint findings that waste GPUs, with their cost."""

from collections.abc import Iterator

from gpuconsole.insight.antipatterns.pattern import DAY_HOURS, AntiPattern, AntiPatternCode
from gpuconsole.insight.cost import unit_hourly
from gpuconsole.insight.device_demand import quota_accelerators, quota_unit
from gpuconsole.insight.gpumap import gpu_rows
from gpuconsole.insight.linting import LintEngines, LintFacts, LintFinding, lint
from gpuconsole.model.cluster import Pod
from gpuconsole.model.device_units import WHOLE_GPU, added, in_one_unit
from gpuconsole.model.job import Job, JobPhase
from gpuconsole.model.objects import Object
from gpuconsole.model.prices import Prices
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload

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
