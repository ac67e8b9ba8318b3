"""What is wrong in the objects themselves, whoever runs: what lint finds of it, with what it costs."""

from collections.abc import Iterator

from gpuconsole.insight.antipatterns.crowd import gpu_price
from gpuconsole.insight.antipatterns.pattern import DAY_HOURS, Code, Pattern
from gpuconsole.insight.linting import Engines, Facts, Finding, lint
from gpuconsole.model.cluster import Pod
from gpuconsole.model.job import Job, JobPhase
from gpuconsole.model.objects import Object
from gpuconsole.model.prices import Prices
from gpuconsole.model.quantity import MAX
from gpuconsole.model.resources import is_gpu
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
    """The findings of lint that are anti-patterns, about what has not ended."""
    alive = [thing for thing in snapshot.objects() if not _over(thing)]
    for finding in lint(Facts(alive, engines)):
        # Of a node it is a warning that nobody uses a profile of its: nobody is refused for it.
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
    gpus = _stranded(snapshot, finding, name)
    return Pattern(
        code=CODES[finding.code],
        subject=name,
        table=_TABLES.get(kind, "jobs" if name.count("/") else ""),
        text=f"{finding.object}: {finding.problem}",
        evidence=finding.evidence,
        gpus=gpus,
        cost_per_day=gpus * gpu_price(snapshot, prices) * DAY_HOURS,
        fix=finding.fix,
    )


def _stranded(snapshot: Snapshot, finding: Finding, name: str) -> int:
    """GPUs that are there and that nobody can be given, as nobody reaches the quota."""
    queue = snapshot.cluster_queues.get(name)
    if finding.code != "unreachable-quota" or queue is None:
        return 0
    wanted = sum(quota.nominal for (_, resource), quota in queue.quotas().items() if is_gpu(resource))
    there = sum(node.gpus for node in snapshot.nodes.all())
    return min(wanted, there, MAX)
