"""Messages for unschedulable pods and pod groups (KAI 0.13 cache/status_updater)."""

from collections.abc import Mapping

from gpuconsole.model.cluster import Pod
from gpuconsole.model.decisions import MarkGroup, PlacementDecision, Unschedulable
from gpuconsole.model.kai import UNSCHEDULABLE_ON_NODE_POOL, KaiPodGroup
from gpuconsole.scheduling.kai.api.errors import UNABLE, UNABLE_POD, summary
from gpuconsole.scheduling.kai.api.jobs import PodGroupInfo
from gpuconsole.scheduling.kai.api.statuses import KaiPodStatus
from gpuconsole.scheduling.kai.api.tasks import DEFAULT_POD_SET, PodInfo

DEFAULT_NODE_POOL = "default"


def words(job: PodGroupInfo, pods: Mapping[str, Pod], group: KaiPodGroup | None, pool: str) -> list[PlacementDecision]:
    """New messages for the job's pending pods and for its PodGroup; unchanged ones are left out."""
    waiting = [task for task in job.tasks() if task.status in (KaiPodStatus.PENDING, KaiPodStatus.GATED)]
    if not waiting:
        return _mark(group, "", job) if group is not None and job.active_allocated else []
    prefix = f"Node-Pool '{pool or DEFAULT_NODE_POOL}': " if group is not None and group.backoff == 1 else ""
    story = prefix + (group_text(job) if job.ready else not_ready(job))
    texts = group is None or group.mark_unschedulable is not False
    said: list[PlacementDecision] = []
    for task in waiting:
        pod = pods[task.uid]
        text = prefix + pod_text(job, task) if job.ready else story
        if texts and task.status is KaiPodStatus.PENDING and pod.message != text:
            said.append(Unschedulable(task.uid, text, pod.gang, story))
    if group is not None and job.ready and not job.active_allocated:
        said += _mark(group, story, job)
    return said


def pod_text(job: PodGroupInfo, task: PodInfo) -> str:
    """Why nodes do not fit the pod, else why its group was not placed."""
    errors = job.task_errors.get(task.uid)
    if errors is not None:
        return errors.message
    return summary(job.errors) if job.errors else UNABLE_POD


def group_text(job: PodGroupInfo) -> str:
    """Why the group was not placed."""
    return summary(job.errors) if job.errors else UNABLE


def not_ready(job: PodGroupInfo) -> str:
    """The message of a group that has too few pods, by pod set."""
    text = "Job is not ready for scheduling."
    for name, pod_set in sorted(job.pod_sets.items()):
        if pod_set.ready:
            continue
        counts = f"currently {pod_set.alive} exist, {pod_set.gated} are gated"
        if name == DEFAULT_POD_SET:
            text += f" Waiting for {pod_set.minimum} pods, {counts}"
        else:
            text += f" Waiting for {pod_set.minimum} pods for SubGroup {name}, {counts}."
    return text


def _mark(group: KaiPodGroup, text: str, job: PodGroupInfo) -> list[PlacementDecision]:
    known = next((c.message for c in group.conditions if c.type == UNSCHEDULABLE_ON_NODE_POOL), "")
    if known == text:
        return []
    return [MarkGroup(group.key, text, tuple((e.reason, ", ".join(e.messages)) for e in job.errors) if text else ())]
