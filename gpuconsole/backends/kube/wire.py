"""Objects as the API server sends them, reduced to the needed fields while their bytes are decoded.

They are typed dicts, because `model.manifests` reads any document by its keys, so that files and API objects have the
same rules. Fields that are not named here (managedFields, probes, volumes, images of nodes …) never become Python
objects. Leaves are `Any`, because the readers check the types.
"""

from typing import Any, TypedDict


class Meta(TypedDict, total=False):
    """Metadata of an object."""

    name: Any
    namespace: Any
    uid: Any
    resourceVersion: Any
    creationTimestamp: Any
    deletionTimestamp: Any
    deletionGracePeriodSeconds: Any
    labels: Any
    annotations: Any
    ownerReferences: Any


class TemplateMeta(TypedDict, total=False):
    """Metadata of a pod template."""

    labels: Any
    annotations: Any


class ObjectWire(TypedDict, total=False):
    """Kinds with small or few objects: only their metadata are reduced."""

    metadata: Meta
    spec: dict[str, Any] | None
    status: dict[str, Any] | None
    # Kinds that have no spec.
    value: Any
    globalDefault: Any
    preemptionPolicy: Any
    description: Any
    handler: Any
    overhead: Any
    template: Any


class PortWire(TypedDict, total=False):
    """Port of a container."""

    containerPort: Any
    hostIP: Any
    hostPort: Any
    protocol: Any


class ContainerWire(TypedDict, total=False):
    """Container of a pod."""

    name: Any
    image: Any
    ports: list[PortWire] | None
    resources: Any
    restartPolicy: Any


class PodSpec(TypedDict, total=False):
    """Spec of a pod or a pod template."""

    containers: list[ContainerWire] | None
    initContainers: list[ContainerWire] | None
    resources: Any
    overhead: Any
    nodeSelector: Any
    affinity: Any
    tolerations: Any
    priorityClassName: Any
    priority: Any
    preemptionPolicy: Any
    restartPolicy: Any
    terminationGracePeriodSeconds: Any
    schedulerName: Any
    schedulingGates: Any
    runtimeClassName: Any
    hostname: Any
    hostNetwork: Any
    subdomain: Any
    resourceClaims: Any
    topologySpreadConstraints: Any
    nodeName: Any


class TemplateWire(TypedDict, total=False):
    """Pod template."""

    metadata: TemplateMeta | None
    spec: PodSpec | None


class ContainerStatus(TypedDict, total=False):
    """Status of a container."""

    name: Any
    ready: Any
    state: Any
    resources: Any
    allocatedResources: Any


class PodStatus(TypedDict, total=False):
    """Status of a pod."""

    phase: Any
    startTime: Any
    nominatedNodeName: Any
    reason: Any
    message: Any
    conditions: Any
    containerStatuses: list[ContainerStatus] | None
    initContainerStatuses: list[ContainerStatus] | None


class PodWire(TypedDict, total=False):
    """Pod."""

    metadata: Meta
    spec: PodSpec
    status: PodStatus


class NodeSpec(TypedDict, total=False):
    """Spec of a node."""

    taints: Any
    unschedulable: Any


class NodeStatus(TypedDict, total=False):
    """Status of a node."""

    capacity: Any
    allocatable: Any
    conditions: Any


class NodeWire(TypedDict, total=False):
    """Node."""

    metadata: Meta
    spec: NodeSpec
    status: NodeStatus


class PodSetWire(TypedDict, total=False):
    """Pod set of a Workload."""

    name: Any
    count: Any
    minCount: Any
    template: TemplateWire | None
    topologyRequest: Any


class WorkloadSpec(TypedDict, total=False):
    """Spec of a Workload."""

    podSets: list[PodSetWire] | None
    queueName: Any
    priority: Any
    priorityClassRef: Any
    priorityClassName: Any
    priorityClassSource: Any
    active: Any
    maximumExecutionTimeSeconds: Any
    preemptionGates: Any


class WorkloadWire(TypedDict, total=False):
    """Workload of Kueue."""

    metadata: Meta
    spec: WorkloadSpec
    status: dict[str, Any] | None


class JobSpec(TypedDict, total=False):
    """Spec of a Job."""

    parallelism: Any
    completions: Any
    completionMode: Any
    backoffLimit: Any
    backoffLimitPerIndex: Any
    maxFailedIndexes: Any
    podFailurePolicy: Any
    successPolicy: Any
    activeDeadlineSeconds: Any
    ttlSecondsAfterFinished: Any
    suspend: Any
    managedBy: Any
    template: TemplateWire | None


class JobWire(TypedDict, total=False):
    """Job of batch/v1."""

    metadata: Meta
    spec: JobSpec
    status: dict[str, Any] | None


class ReplicaSetSpec(TypedDict, total=False):
    """Spec of a ReplicaSet."""

    replicas: Any
    selector: Any
    template: TemplateWire | None


class ReplicaSetWire(TypedDict, total=False):
    """ReplicaSet."""

    metadata: Meta
    spec: ReplicaSetSpec
    status: dict[str, Any] | None


class InvolvedObject(TypedDict, total=False):
    """Object that an Event is about."""

    kind: Any
    namespace: Any
    name: Any
    uid: Any


class EventWire(TypedDict, total=False):
    """Event of Kubernetes."""

    metadata: Meta
    involvedObject: InvolvedObject
    reason: Any
    message: Any
    type: Any
    count: Any
    firstTimestamp: Any
    lastTimestamp: Any
    eventTime: Any
    series: Any


FORMS: dict[tuple[str, str], type[Any]] = {
    ("", "Pod"): PodWire,
    ("", "Node"): NodeWire,
    ("", "Event"): EventWire,
    ("kueue.x-k8s.io", "Workload"): WorkloadWire,
    ("batch", "Job"): JobWire,
    ("apps", "ReplicaSet"): ReplicaSetWire,
}
"""(group, kind) → form of its objects; other kinds have `ObjectWire`."""
