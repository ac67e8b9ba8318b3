"""Anti-patterns in the objects themselves: the lint findings that waste GPUs, with their cost."""

from collections.abc import Iterator

from gpuconsole.insight.antipatterns.pattern import DAY_HOURS, Code, Pattern
from gpuconsole.insight.cost import unit_hourly
from gpuconsole.insight.device_demand import quota_accelerators, quota_unit
from gpuconsole.insight.gpumap import gpu_rows
from gpuconsole.insight.linting import Engines, Facts, Finding, lint
from gpuconsole.model.cluster import Pod
from gpuconsole.model.device_units import WHOLE_GPU, added, in_one_unit
from gpuconsole.model.job import Job, JobPhase
from gpuconsole.model.objects import Object
from gpuconsole.model.prices import Prices
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload

CODES = {
    "cohort-cycle": Code.COHORT_CYCLE,
    "unreachable-quota": Code.UNREACHABLE_QUOTA,
    "quota-beyond-nodes": Code.UNREACHABLE_QUOTA,
    "never-fits-quota": Code.NEVER_FITS,
    "never-fits-flavor": Code.NEVER_FITS,
    "never-fits-topology": Code.NEVER_FITS,
    "never-fits-node": Code.NEVER_FITS,
    "never-fits-cluster": Code.NEVER_FITS,
    "resource-not-covered": Code.NEVER_FITS,
    "mig-profile-not-covered": Code.NEVER_FITS,
    "missing-priority-class": Code.MISSING_PRIORITY_CLASS,
}
_TABLES = {"ClusterQueue": "cluster_queues", "Cohort": "cohorts", "ResourceFlavor": "flavors", "Workload": "workloads"}


def find(snapshot: Snapshot, engines: Engines, prices: Prices) -> Iterator[Pattern]:
    """The lint findings that are anti-patterns, about work that has not finished."""
    alive = [thing for thing in snapshot.objects() if not _over(thing)]
    for finding in lint(Facts(alive, engines)):
        # About a node, the finding is only a warning: no workload is refused for a MIG profile without quota.
        if finding.code in CODES and not finding.object.startswith("Node/"):
            yield _pattern(snapshot, finding, prices)


def _over(thing: Object) -> bool:
    match thing:
        case Workload():
            return thing.finished
        case Job():
            return thing.phase in (JobPhase.SUCCEEDED, JobPhase.FAILED)
        case Pod():
            return thing.done
        case _:
            return False


def _pattern(snapshot: Snapshot, finding: Finding, prices: Prices) -> Pattern:
    kind, _, name = finding.object.partition("/")
    gpus, unit = _stranded(snapshot, finding, name)
    return Pattern(
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


def _stranded(snapshot: Snapshot, finding: Finding, name: str) -> tuple[int, str]:
    """Accelerators that no workload can get because their quota is unreachable, and their unit."""
    queue = snapshot.cluster_queues.get(name)
    if finding.code != "unreachable-quota" or queue is None:
        return 0, WHOLE_GPU.noun
    counted = quota_accelerators(snapshot)
    quotas = [(resource, quota.nominal) for (_, resource), quota in queue.quotas().items() if resource in counted]
    wanted = added(*({quota_unit(snapshot, resource): nominal} for resource, nominal in quotas))
    there = added(*(row.units for row in gpu_rows(snapshot)))
    return in_one_unit({unit: min(nominal, there.get(unit, 0)) for unit, nominal in wanted.items()})
