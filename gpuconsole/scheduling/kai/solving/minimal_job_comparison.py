"""Failed jobs by scheduling constraints, to skip equivalent jobs that request no less (KAI 0.13).

The rule is actions/common minimal_job_comparison over scheduling constraints signatures.
"""

from collections.abc import Hashable, Sequence

import msgspec

from gpuconsole.model.pod_template import PodAffinity
from gpuconsole.scheduling.kai.api.jobs import PodGroupInfo
from gpuconsole.scheduling.kai.api.pod_sets import PodSetInfo, SubGroup
from gpuconsole.scheduling.kai.api.requests import ResourceRequirements
from gpuconsole.scheduling.kai.api.statuses import ACTIVE_ALLOCATED
from gpuconsole.scheduling.kai.api.tasks import PodInfo
from gpuconsole.scheduling.kube.plugins.pod_plugins import host_ports


class FailedJobs:
    """The smallest failed job by constraints (`signature`); remembers nothing if `used` is False. Mutates."""

    def __init__(self, used: bool) -> None:
        self._used = used
        self._smallest: dict[Hashable, PodGroupInfo] = {}

    def would_fail(self, job: PodGroupInfo) -> bool:
        """True if an equivalent job that requests no more has failed already."""
        if not self._used or not self._smallest:
            return False
        failed = self.smallest_like(job)
        return failed is not None and not easier(job, failed)

    def smallest_like(self, job: PodGroupInfo) -> PodGroupInfo | None:
        """The smallest failed job with the same constraints; None if there is none."""
        return self._smallest.get(signature(job))

    def add(self, job: PodGroupInfo) -> None:
        """Record that the job failed."""
        if not self._used:
            return
        key = signature(job)
        failed = self._smallest.get(key)
        if failed is None or smaller(job, failed):
            self._smallest[key] = job


def easier(job: PodGroupInfo, failed: PodGroupInfo) -> bool:
    """True if the job has fewer pending tasks than the failed one, or one that requests less."""
    tasks, others = job.pending, failed.pending
    if not tasks or not others:
        return False
    if len(others) > len(tasks):
        return True
    for mine, theirs in zip(_rising(tasks), _rising(others), strict=False):
        if mine.within(theirs) and not theirs.within(mine):
            return True
    return False


def smaller(job: PodGroupInfo, failed: PodGroupInfo) -> bool:
    """True if the job has no more pending tasks than the failed one, and none requests more."""
    tasks, others = job.pending, failed.pending
    if not tasks or not others or len(tasks) > len(others):
        return False
    return all(mine.within(theirs) for mine, theirs in zip(_rising(tasks), _rising(others), strict=False))


def _rising(tasks: Sequence[PodInfo]) -> list[ResourceRequirements]:
    """Requests from small to large, as far as they can be compared."""
    rising: list[ResourceRequirements] = []
    for task in tasks:
        at = next((i for i, other in enumerate(rising) if task.request.within(other)), len(rising))
        rising.insert(at, task.request)
    return rising


def signature(job: PodGroupInfo) -> Hashable:
    """Key of the constraints of the job's tasks that are not placed; equal for jobs that fit the same nodes."""
    return tuple(sorted(filter(None, (_of_pod_set(pod_set) for pod_set in job.pod_sets.values())), key=repr))


def _of_pod_set(pod_set: PodSetInfo) -> tuple[object, ...]:
    tasks = [task for task in pod_set.tasks.values() if task.status not in ACTIVE_ALLOCATED]
    if not tasks:
        return ()
    constraints: list[object] = [pod_set.constraint]
    parent: SubGroup | None = pod_set.parent
    while parent is not None:
        constraints.append(parent.constraint)
        parent = parent.parent
    return (*constraints, *sorted((_of_task(task) for task in tasks), key=repr))


def _of_task(task: PodInfo) -> Hashable:
    spec, template = task.spec, task.spec.pod.template
    return (
        tuple(sorted(spec.node_selector.items())),
        spec.affinity,
        *(_text(template.pod_affinity), _text(template.pod_anti_affinity)),
        *(template.volumes, template.resource_claims, host_ports(template)),
        tuple((t.key, t.operator, t.value, t.effect) for t in spec.tolerations),
        spec.priority_class,
        spec.priority,
    )


def _text(wish: PodAffinity | None) -> bytes:
    """A hashable form of pod affinity, whose label selectors are not hashable."""
    return b"" if wish is None else msgspec.json.encode(wish, order="deterministic")
