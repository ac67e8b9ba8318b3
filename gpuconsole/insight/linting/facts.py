"""Input and findings of the lint rules.

`LintFacts` has the objects as a Snapshot, the work among them, and the schedulers as far as they are known. A
`LintFinding` has a stable code, severity, place, evidence and fix.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.insight.unblock.admission_trial import all_nodes
from gpuconsole.model.autoscaling import InstanceTypeCatalogue
from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.documents.findings import Path
from gpuconsole.model.events import Applied
from gpuconsole.model.job import CronRules, Job
from gpuconsole.model.jobs.workloads import QUEUE
from gpuconsole.model.kai import KaiPodGroup
from gpuconsole.model.objects import Object
from gpuconsole.model.pod_template import PodSet, PodTemplate
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.state import ClusterState
from gpuconsole.model.volcano import PodGroup
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kai.config import KaiPolicy
from gpuconsole.scheduling.kube.pod_groups import pod_group_of
from gpuconsole.scheduling.kube.profile import PlacementPolicy
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.queue_names import group_key
from gpuconsole.scheduling.volcano.config import ParsedVolcanoConfiguration, VolcanoPolicy
from gpuconsole.scheduling.volcano.jobs.pod_group import QUEUE_NAME
from gpuconsole.sim.policy import FIXED, Capacity, FixedCapacity

Evidence = Mapping[str, str | int]


class LintLevel(StrEnum):
    """Severity of a finding."""

    ERROR = "error"
    """It cannot work as it is written."""
    WARNING = "warning"
    """It works, but probably not as its author intends."""
    NOTE = "note"
    """Worth knowing; it may be intended."""


class LintFinding(Struct, frozen=True, kw_only=True):
    """One error or likely mistake in the combination of manifests."""

    code: str
    level: LintLevel
    object: str
    """`Kind/name` or `Kind/namespace/name`, or the file of a configuration."""
    path: Path = ()
    """The field, from the object's root; empty for the object as a whole."""
    problem: str
    evidence: Evidence = {}
    """The numbers and names that support it."""
    fix: str
    line: int = 0
    """Line number, if only the text gives it; 0 if the field does."""


def object_name(obj: Object) -> str:
    """Return the name of an object in findings, with its kind as in its manifest (a Volcano Job is a Job)."""
    if isinstance(obj, Job):
        kind = "Job" if obj.kind == "VolcanoJob" else obj.kind
        return f"{kind}/{obj.namespace}/{obj.name}"
    return f"{_KINDS.get(type(obj).__name__, type(obj).__name__)}/{obj.key}"


_KINDS = {"VolcanoQueue": "Queue", "KaiQueue": "Queue"}


SCHEDULERS = {"kai-scheduler": "KAI", "volcano": "Volcano"}
"""schedulerName → scheduler."""
VOLCANO_QUEUES = (QUEUE_NAME, "volcano.sh/queue-name")


class LintEngines(Struct, frozen=True, kw_only=True):
    """Schedulers and Kueue configuration as far as a scenario states them; empty for manifests alone."""

    placement: str = ""
    """`kube-scheduler`, `Volcano` or `KAI`; if empty, each pod's schedulerName decides."""
    kueue: KueueConfig | None = None
    """Kueue's configuration; None if it is unknown, or Kueue is not installed."""
    unqueued: bool = False
    """True if Kueue is not installed."""
    volcano: ParsedVolcanoConfiguration | None = None
    volcano_name: str = "volcano-scheduler.conf"
    own_file: bool = True
    """True if Volcano's configuration is a file of its own, so that findings have line numbers."""
    capacity: Capacity = FIXED

    @property
    def catalogue(self) -> InstanceTypeCatalogue | None:
        """The instance-type catalogue, where nodes are provisioned."""
        return None if isinstance(self.capacity, FixedCapacity) else self.capacity.catalogue


OPEN = LintEngines()
"""Nothing is known about schedulers and configuration."""


class Work(Struct, frozen=True, kw_only=True):
    """Pods that belong together: of a job, of a Workload without a job, of a PodGroup without either, or a lone pod."""

    object: str
    obj: Job | Workload | Pod
    namespace: str
    queue: str
    """LocalQueue; empty without Kueue."""
    pod_sets: tuple[PodSet, ...]
    gang: bool = False
    template_path: Path = ("spec",)

    def least(self, pod_set: PodSet) -> int:
        """Return the minimum number of pods of a pod set that Kueue admits (minCount, else its count)."""
        return pod_set.count if pod_set.min_count is None else pod_set.min_count

    @property
    def templates(self) -> Iterator[PodTemplate]:
        """The pod templates of its pod sets."""
        return (pod_set.template for pod_set in self.pod_sets)


class LintFacts:
    """Input of all lint rules. Immutable."""

    def __init__(self, objects: Sequence[Object], engines: LintEngines = OPEN) -> None:
        state = ClusterState(0)
        for obj in objects:
            state.apply(Applied(0, obj))
        self.snapshot: Snapshot = state.freeze()
        self.engines = engines

    @cached_property
    def all_nodes(self) -> tuple[Node, ...]:
        """Return all nodes as if they were healthy; empty if none are known or further ones can appear."""
        return all_nodes(self.snapshot, self.engines.capacity)

    @cached_property
    def work(self) -> tuple[Work, ...]:
        """All work, in the order of its names."""
        return tuple(sorted(self._work(), key=lambda work: work.object))

    def _work(self) -> Iterator[Work]:
        owners = set()
        for job in self.snapshot.jobs.all():
            owners.add(job.key)
            whole = Work(
                object=object_name(job),
                obj=job,
                namespace=job.namespace,
                queue=job.rules.queue if isinstance(job.rules, CronRules) else job.queue,
                pod_sets=_least(job.pod_sets, job.min_available),
                gang=not job.solo,
            )
            group = self.group(whole)
            if group is not None and job.volcano is None:
                whole = replace(whole, pod_sets=_least(job.pod_sets, group.min_member), gang=group.min_member > 1)
            yield whole
        for workload in self.snapshot.workloads.all():
            if workload.owner not in owners:
                yield Work(
                    object=object_name(workload),
                    obj=workload,
                    namespace=workload.namespace,
                    queue=workload.queue,
                    pod_sets=workload.pod_sets,
                    gang=True,
                )
        members: dict[str, list[Pod]] = {}
        for pod in self.snapshot.pods.all():
            if not pod.job and not pod.workload and not pod.done:
                members.setdefault(group_key(pod) or f"Pod/{pod.key}", []).append(pod)
        for key, pods in members.items():
            group = self.snapshot.pod_groups.get(key) or self.snapshot.kai_pod_groups.get(key)
            is_uniform = group is not None and all(pod.template == pods[0].template for pod in pods)
            if group is not None and is_uniform and 1 < group.min_member <= len(pods):
                sets = (PodSet(count=len(pods), min_count=group.min_member, template=pods[0].template),)
                yield replace(_alone(pods[0]), object=object_name(group), pod_sets=sets, gang=True)
            else:
                yield from map(_alone, pods)

    def group(self, work: Work) -> PodGroup | KaiPodGroup | None:
        """Return the PodGroup (Volcano, KAI or Coscheduling plugin) that all of its pods name; None without one."""
        keys = {_group_of(work, template) for template in work.templates}
        key = keys.pop() if len(keys) == 1 else ""
        return self.snapshot.pod_groups.get(key) or self.snapshot.kai_pod_groups.get(key)

    def placing(self, work: Work) -> str:
        """Return the scheduler of its pods: `kube-scheduler`, `Volcano` or `KAI`."""
        name = next((template.scheduler_name for template in work.templates), "")
        return self.engines.placement or SCHEDULERS.get(name, "kube-scheduler")

    def cluster_queue(self, work: Work) -> str:
        """Return the ClusterQueue of a piece of work; empty if there is none, or it is unknown."""
        if not work.queue or self.engines.unqueued:
            return ""
        local_queue = self.snapshot.local_queues.get(f"{work.namespace}/{work.queue}")
        return (
            local_queue.cluster_queue
            if local_queue is not None and local_queue.cluster_queue in self.snapshot.cluster_queues
            else ""
        )


def _least(pod_sets: tuple[PodSet, ...], needed: int | None) -> tuple[PodSet, ...]:
    """Return the pod sets with the number of pods that start together, if a single pod set gives that number."""
    if needed is None or len(pod_sets) != 1 or needed >= pod_sets[0].count:
        return pod_sets
    (only,) = pod_sets
    return (PodSet(name=only.name, count=only.count, min_count=needed, template=only.template),)


def _alone(pod: Pod) -> Work:
    sets = (PodSet(count=1, template=pod.template),)
    return Work(
        object=object_name(pod), obj=pod, namespace=pod.namespace, queue=pod.labels.get(QUEUE, ""), pod_sets=sets
    )


def _group_of(work: Work, template: PodTemplate) -> str:
    """Return the key of the PodGroup that pods of this template name."""
    if isinstance(work.obj, Pod):
        return group_key(work.obj)
    pod = Pod(namespace=work.namespace, name="", labels=template.labels, annotations=template.annotations)
    return group_key(pod) or pod_group_of(pod)


def placed_by(policy: PlacementPolicy | VolcanoPolicy | KaiPolicy) -> str:
    """Return the name of the scheduler of a policy."""
    match policy:
        case VolcanoPolicy():
            return "Volcano"
        case KaiPolicy():
            return "KAI"
        case PlacementPolicy():
            return "kube-scheduler"
        case _:
            assert_never(policy)
