"""Labels and annotations of pods, PodGroups and nodes that Volcano reads."""

from collections.abc import Mapping

from gpuconsole.model.cluster import Pod
from gpuconsole.scheduling.volcano.arguments import parse_flag

GROUP_NAME = "scheduling.k8s.io/group-name"
TASK_SPEC = "volcano.sh/task-spec"
TASK_PRIORITY = "volcano.sh/task-priority"
PREEMPTABLE = "volcano.sh/preemptable"
REVOCABLE_ZONE = "volcano.sh/revocable-zone"
NUMA_POLICY = "volcano.sh/numa-topology-policy"
QUEUE_GATE = "scheduling.volcano.sh/queue-allocation-gate"
SLA_WAITING_TIME = "sla-waiting-time"
SLA_WAITING_TIMES = ("volcano.sh/sla-waiting-time", SLA_WAITING_TIME)
"""Both keys are read; the first with a valid time counts."""
MIN_AVAILABLE = "volcano.sh/jdb-min-available"
MAX_UNAVAILABLE = "volcano.sh/jdb-max-unavailable"
HIERARCHY = "volcano.sh/hierarchy"
HIERARCHY_WEIGHTS = "volcano.sh/hierarchy-weights"
OVERSUBSCRIPTION = "volcano.sh/oversubscription"
OVERSUBSCRIPTION_CPU = "volcano.sh/oversubscription-cpu"
OVERSUBSCRIPTION_MEMORY = "volcano.sh/oversubscription-memory"
OFFLINE_JOB_EVICTING = "volcano.sh/offline-job-evicting"


def group_of(pod: Pod) -> str:
    """`namespace/name` of the pod's PodGroup; empty if it names none (getJobID)."""
    group = pod.annotations.get(GROUP_NAME)
    return f"{pod.namespace}/{group}" if group else ""


def role_of(pod: Pod) -> str:
    """The task of the Volcano Job that the pod belongs to; empty if it names none."""
    return pod.annotations.get(TASK_SPEC) or pod.labels.get(TASK_SPEC, "")


def preemptable(labels: Mapping[str, str], annotations: Mapping[str, str], otherwise: bool) -> bool:
    """The value of the annotation, else of the label; False if it is invalid, `otherwise` if both are missing."""
    for place in (annotations, labels):
        if PREEMPTABLE in place:
            return parse_flag(place[PREEMPTABLE]) or False
    return otherwise


def revocable_zone(annotations: Mapping[str, str]) -> str:
    """`*` if the pod may run on revocable nodes, else empty; without an annotation a preemptable one decides."""
    if REVOCABLE_ZONE in annotations:
        return "*" if annotations[REVOCABLE_ZONE] == "*" else ""
    return "*" if parse_flag(annotations.get(PREEMPTABLE, "")) else ""
