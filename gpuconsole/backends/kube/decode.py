"""Decodes list pages and watch lines of the API server into the model's structs, one `Decoder` per kind.

Objects are first reduced to the needed fields while their bytes are decoded. The reduced forms are typed dicts, because
`model.manifests` reads any document by its keys, so that files and API objects have the same rules. Fields that are not
named here (managedFields, probes, volumes, images of nodes …) never become Python objects. Leaves are `Any`, because
the readers check the types.

The functions after these forms find the job of a pod in its labels and ownerReferences, and decide which pods and jobs
the console keeps. They look at documents before these are decoded: in a cluster with 100,000 pods most are not needed.
At the end are the messages (`WatchMessage`) from the watches' threads to the polling thread.
"""

import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, TypedDict

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.backends.kube.discovery import EVENT, Served
from gpuconsole.backends.kube.errors import decoded
from gpuconsole.model.clock import Time, parse_time
from gpuconsole.model.cluster import Pod
from gpuconsole.model.documents.findings import Silence
from gpuconsole.model.documents.reader import Reader
from gpuconsole.model.events import HistoryEvent
from gpuconsole.model.job import CronRules, FlowRules, Job, TemplateRules
from gpuconsole.model.jobs.services_and_pod_groups import GROUP
from gpuconsole.model.jobs.workloads import OWNER_KINDS, QUEUE, WORKLOAD
from gpuconsole.model.manifests.kinds import DECODERS
from gpuconsole.model.objects import Object, intern
from gpuconsole.model.resources import is_gpu, is_mig
from gpuconsole.model.text import clean


class Meta(TypedDict, total=False):
    """The needed fields of an object's metadata."""

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
    """The needed fields of a pod template's metadata."""

    labels: Any
    annotations: Any


class ObjectWire(TypedDict, total=False):
    """The form for all other kinds, which have few or small objects: only their metadata are reduced."""

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
    """The needed fields of a container's port."""

    containerPort: Any
    hostIP: Any
    hostPort: Any
    protocol: Any


class ContainerWire(TypedDict, total=False):
    """The needed fields of a container of a pod."""

    name: Any
    image: Any
    ports: list[PortWire] | None
    resources: Any
    restartPolicy: Any


class PodSpec(TypedDict, total=False):
    """The needed fields of the spec of a pod or a pod template."""

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
    """The needed fields of a pod template."""

    metadata: TemplateMeta | None
    spec: PodSpec | None


class ContainerStatus(TypedDict, total=False):
    """The needed fields of a container's status."""

    name: Any
    ready: Any
    restartCount: Any
    state: Any
    resources: Any
    allocatedResources: Any


class PodStatus(TypedDict, total=False):
    """The needed fields of a pod's status."""

    phase: Any
    startTime: Any
    nominatedNodeName: Any
    reason: Any
    message: Any
    conditions: Any
    containerStatuses: list[ContainerStatus] | None
    initContainerStatuses: list[ContainerStatus] | None


class PodWire(TypedDict, total=False):
    """The needed fields of a pod."""

    metadata: Meta
    spec: PodSpec
    status: PodStatus


class NodeSpec(TypedDict, total=False):
    """The needed fields of a node's spec."""

    taints: Any
    unschedulable: Any


class NodeStatus(TypedDict, total=False):
    """The needed fields of a node's status."""

    capacity: Any
    allocatable: Any
    conditions: Any


class NodeWire(TypedDict, total=False):
    """The needed fields of a node."""

    metadata: Meta
    spec: NodeSpec
    status: NodeStatus


class PodSetWire(TypedDict, total=False):
    """The needed fields of a pod set of a Workload."""

    name: Any
    count: Any
    minCount: Any
    template: TemplateWire | None
    topologyRequest: Any


class WorkloadSpec(TypedDict, total=False):
    """The needed fields of a Workload's spec."""

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
    """The needed fields of a Workload of Kueue."""

    metadata: Meta
    spec: WorkloadSpec
    status: dict[str, Any] | None


class JobSpec(TypedDict, total=False):
    """The needed fields of a Job's spec."""

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
    """The needed fields of a Job of batch/v1."""

    metadata: Meta
    spec: JobSpec
    status: dict[str, Any] | None


class ReplicaSetSpec(TypedDict, total=False):
    """The needed fields of a ReplicaSet's spec."""

    replicas: Any
    selector: Any
    template: TemplateWire | None


class ReplicaSetWire(TypedDict, total=False):
    """The needed fields of a ReplicaSet."""

    metadata: Meta
    spec: ReplicaSetSpec
    status: dict[str, Any] | None


class InvolvedObject(TypedDict, total=False):
    """The needed fields of an Event's reference to its object."""

    kind: Any
    namespace: Any
    name: Any
    uid: Any


class EventWire(TypedDict, total=False):
    """The needed fields of a Kubernetes Event."""

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
"""Form in which the objects of a (group, kind) are decoded; other kinds have `ObjectWire`."""


Document = Mapping[str, Any]

_BY_LABEL = (
    ("workload.codeflare.dev/appwrapper", "AppWrapper"),
    ("sparkoperator.k8s.io/app-name", "SparkApplication"),
    ("jobset.sigs.k8s.io/jobset-name", "JobSet"),
    ("volcano.sh/job-name", "VolcanoJob"),
    ("leaderworkerset.sigs.k8s.io/name", "LeaderWorkerSet"),
)
"""Label with the name of a pod's job → kind of the job; kinds that contain others come first."""
_TEMPLATE_HASH = "pod-template-hash"
"""Label of a Deployment's pods: the suffix in the name of its ReplicaSet."""
_RAY_NAME, _RAY_KIND = "ray.io/originated-from-cr-name", "ray.io/originated-from-crd"
_NO_OWNERS = ("CronJob",)
"""Controllers that do not replace their Jobs on screens."""
_QUEUE_MARKS = (
    *(WORKLOAD, QUEUE, GROUP, "gpu-fraction", "gpu-memory", "kai.scheduler/queue", "runai/queue"),
    *("scheduling.k8s.io/group-name", "scheduling.x-k8s.io/pod-group", "pod-group-name"),
)
"""Labels and annotations of pods that are queued or gang-scheduled."""


def job_of(document: Document) -> str:
    """Return `Kind/namespace/name` of the job that a pod belongs to; empty if there is none.

    The pods of a JobSet are owned by its Jobs, those of a RayJob by its RayCluster, but labels name the job itself.
    """
    meta = _mapping(document, "metadata")
    labels = _mapping(meta, "labels")
    namespace = meta.get("namespace") or "default"
    for label, kind in _BY_LABEL:
        if isinstance(labels.get(label), str):
            return f"{kind}/{namespace}/{labels[label]}"
    if labels.get(_RAY_KIND) == "RayJob" and isinstance(labels.get(_RAY_NAME), str):
        return f"RayJob/{namespace}/{labels[_RAY_NAME]}"
    kind, name = controller(document) or ("", "")
    suffix = f"-{labels.get(_TEMPLATE_HASH)}"
    if kind == "ReplicaSet" and name.endswith(suffix):
        kind, name = "Deployment", name.removesuffix(suffix)
    return f"{kind}/{namespace}/{name}" if name else ""


def controller(document: Document) -> tuple[str, str] | None:
    """Return (kind, name) of the controlling owner, or of the first owner; None if there is none."""
    owners = [owner for owner in _list(_mapping(document, "metadata"), "ownerReferences") if isinstance(owner, dict)]
    owner = next((owner for owner in owners if owner.get("controller")), owners[0] if owners else None)
    if owner is None:
        return None
    group = str(owner.get("apiVersion", "")).rpartition("/")[0]
    kind = str(owner.get("kind", ""))
    return OWNER_KINDS.get((group, kind), kind), str(owner.get("name", ""))


def is_part(document: Document) -> bool:
    """True for a Job or ReplicaSet that belongs to another object, which the console shows instead."""
    owner = controller(document)
    return owner is not None and owner[0] not in _NO_OWNERS


def wants_gpus(spec: Document) -> bool:
    """True for a pod spec that requests devices of any kind."""
    if spec.get("resourceClaims"):
        return True
    return any(_is_device(name) for name in _asked(spec))


def concerns_us(document: Document, known: Collection[str]) -> bool:
    """True for a pod that the console keeps: it requests GPUs, is queued or gang-scheduled, or has a job in `known`."""
    meta = _mapping(document, "metadata")
    marks = (_mapping(meta, "labels"), _mapping(meta, "annotations"))
    return (
        any(mark in place for place in marks for mark in _QUEUE_MARKS)
        or wants_gpus(_mapping(document, "spec"))
        or job_of(document) in known
    )


def _asked(spec: Document) -> Iterator[str]:
    """Yield the names of the resources that a pod spec requests."""
    containers = (container for key in ("containers", "initContainers") for container in _list(spec, key))
    for place in (*containers, spec):
        needs = _mapping(place, "resources")
        for part in ("limits", "requests"):
            yield from (name for name, amount in _mapping(needs, part).items() if amount not in (0, "0"))


def _is_device(resource: str) -> bool:
    return is_gpu(resource) or is_mig(resource) or "gpu" in resource


def _mapping(document: Any, key: str) -> Document:
    value = document.get(key) if isinstance(document, dict) else None
    return value if isinstance(value, dict) else {}


def _list(document: Document, key: str) -> list[Any]:
    value = document.get(key)
    return value if isinstance(value, list) else []


ADDED, MODIFIED, DELETED, BOOKMARK, ERROR = "ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"
"""Types of watch events."""
INITIAL_EVENTS_END = "k8s.io/initial-events-end"
"""Annotation of the bookmark that ends the initial events."""
_DROPPED = "kubectl.kubernetes.io/last-applied-configuration"
_SILENCE = Silence()
_PARTS = (("batch", "Job"), ("apps", "ReplicaSet"))
"""Kinds whose objects are mostly owned by others, such as a JobSet or a Deployment."""


class CoreEvent(Struct, frozen=True, kw_only=True):
    """A Kubernetes Event about an object."""

    kind: str
    key: str
    """`namespace/name` of the object that it is about."""
    reason: str
    message: str
    warning: bool = False
    time: Time = 0
    """Time of its last occurrence."""


class Item(Struct, frozen=True):
    """One object of a response. `obj` is None if the console does not need it or cannot read it."""

    name: str
    """`namespace/name`."""
    version: str
    obj: Object | CoreEvent | None
    key: str = ""
    """Key of the object in the model; empty if `obj` is None or a CoreEvent."""
    unread: bool = False
    """True if the object could not be read; without a name it is unknown which object it is."""
    document: dict[str, Any] | None = None
    """The object as it was decoded, if the decoder keeps it for a recording."""


class ListPage(Struct, frozen=True):
    """One page of a list."""

    items: list[Item]
    version: str
    """resourceVersion of the list, from which a watch can continue."""
    more: str = ""
    """Continue token of the next page; empty on the last one."""


class WatchEvent(Struct, frozen=True):
    """One line of a watch: an object, a bookmark (with its `version`; `end`: after the initial events), or an error."""

    type: str
    item: Item | None = None
    version: str = ""
    end: bool = False
    code: int = 0
    reason: str = ""
    message: str = ""


class _ListMeta(Struct, frozen=True):
    resourceVersion: str
    continue_: str = msgspec.field(default="", name="continue")


class _ListResponse(Struct, frozen=True):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None
    kind: str = "List"


class _Lines(Struct, frozen=True):
    type: str
    object: msgspec.Raw


class _MarkMeta(Struct, frozen=True):
    resourceVersion: str = ""
    annotations: dict[str, str] | None = None


class _Mark(Struct, frozen=True):
    metadata: _MarkMeta = _MarkMeta()


class _NamedMeta(Struct, frozen=True):
    name: str
    namespace: str = ""
    resourceVersion: str = ""


class _Named(Struct, frozen=True):
    metadata: _NamedMeta


class _Failure(Struct, frozen=True):
    code: int = 0
    reason: str = ""
    message: str = ""


_PAGES = msgspec.json.Decoder(_ListResponse)
_LINES = msgspec.json.Decoder(_Lines)
_MARKS = msgspec.json.Decoder(_Mark)
_NAMED = msgspec.json.Decoder(_Named)
_FAILURES = msgspec.json.Decoder(_Failure)


class Decoder:
    """Decodes the objects of one kind."""

    def __init__(self, served: Served, known: Collection[str] = (), *, keeps_documents: bool = False) -> None:
        """`known` are the keys of jobs whose pods are kept even without GPUs."""
        self.served = served
        self._keeps_documents = keeps_documents
        self._known = known
        self._form: msgspec.json.Decoder[Any] = msgspec.json.Decoder(FORMS.get(served.source, ObjectWire))
        self._version = f"{served.group}/{served.version}" if served.group else served.version

    def page(self, body: bytes, now: Time) -> ListPage:
        """Decode a page of a list. Raises msgspec.DecodeError if it is not a list."""
        page = decoded(body, _PAGES)
        if not page.metadata.resourceVersion or not page.kind.endswith("List"):
            raise msgspec.DecodeError(f"a {clean(page.kind, 100)} is not a list with a resourceVersion")
        items = [self.item(raw, now) for raw in page.items or ()]
        return ListPage(items, page.metadata.resourceVersion, page.metadata.continue_)

    def line(self, text: bytes, now: Time) -> WatchEvent:
        """Decode a line of a watch. Raises msgspec.DecodeError if it is not a watch event."""
        line = decoded(text, _LINES)
        if line.type == BOOKMARK:
            meta = decoded(line.object, _MARKS).metadata
            return WatchEvent(
                BOOKMARK, version=meta.resourceVersion, end=INITIAL_EVENTS_END in (meta.annotations or ())
            )
        if line.type == ERROR:
            failure = decoded(line.object, _FAILURES)
            return WatchEvent(ERROR, code=failure.code, reason=clean(failure.reason), message=clean(failure.message))
        if line.type not in (ADDED, MODIFIED, DELETED):
            raise msgspec.DecodeError(f"an event of type {clean(line.type, 100)}")
        item = self.item(line.object, now)
        return WatchEvent(line.type, item, item.version)

    def item(self, raw: msgspec.Raw | bytes, now: Time) -> Item:
        """Decode one object; an unreadable one is marked, never raised."""
        try:
            document = decoded(raw, self._form)
            meta = document["metadata"]
            name, version = f"{meta.get('namespace') or ''}/{meta['name']}", str(meta.get("resourceVersion", ""))
        except (msgspec.DecodeError, KeyError, TypeError):
            return _nameable(raw)
        if not isinstance(meta["name"], str) or not meta["name"]:
            return _nameable(raw)
        try:
            obj = self._object(document, now)
        except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError):
            # Readers should never raise; if one does, its object is reported as unread.
            return Item(name, version, None, unread=True)
        # The tables and indexes of the process have the same keys (`ObjectTable`).
        key = "" if obj is None or isinstance(obj, CoreEvent) else sys.intern(obj.key)
        return Item(
            key if key == name else name, version, obj, key, document=document if self._keeps_documents else None
        )

    def _object(self, document: dict[str, Any], now: Time) -> Object | CoreEvent | None:
        source = self.served.source
        if source == EVENT:
            return _core_event(document, now)
        if source == ("", "Pod") and not concerns_us(document, self._known):
            return None
        if source in _PARTS and is_part(document):
            return None
        annotations = document["metadata"].get("annotations")
        if isinstance(annotations, dict):
            annotations.pop(_DROPPED, None)
        document["apiVersion"], document["kind"] = self._version, self.served.kind
        obj = intern(DECODERS[source](Reader(document, _SILENCE), now))
        match obj:
            case Pod():
                return _attributed(obj, document)
            case Job() if not _is_ours(obj):
                return None
            case _:
                return obj if obj.name else None


def _nameable(raw: msgspec.Raw | bytes) -> Item:
    """Return the name of an object that cannot be read, as far as it can be decoded."""
    try:
        meta = decoded(raw, _NAMED).metadata
    except msgspec.DecodeError:
        return Item("", "", None, unread=True)
    name = f"{meta.namespace}/{meta.name}" if meta.name else ""
    return Item(name, meta.resourceVersion, None, unread=True)


def _attributed(pod: Pod, document: dict[str, Any]) -> Pod:
    group = pod.labels.get(GROUP, "")
    workload = pod.workload or (f"{pod.namespace}/{group}" if group else "")
    job, node = clean(job_of(document), 400), pod.node
    return replace(pod, job=sys.intern(job), workload=sys.intern(workload), node=sys.intern(node))


def _is_ours(job: Job) -> bool:
    """True for a job that is queued or requests devices; the console ignores other jobs."""
    return bool(
        job.queue
        or (isinstance(job.rules, CronRules) and (job.rules.queue or job.rules.volcano is not None))
        or isinstance(job.rules, FlowRules | TemplateRules)
        or QUEUE in job.labels
        or job.volcano is not None
        or any(_template_wants_gpus(pods.template) for pods in job.pod_sets)
    )


def _template_wants_gpus(template: Any) -> bool:
    if template.resource_claims:
        return True
    containers = (*template.containers, *template.init_containers)
    needs = [{"resources": {"requests": c.requests, "limits": c.limits}} for c in containers]
    return wants_gpus({"containers": needs})


def _core_event(document: dict[str, Any], now: Time) -> CoreEvent | None:
    about = document.get("involvedObject") or {}
    namespace, name = about.get("namespace"), about.get("name")
    if not isinstance(name, str):
        return None
    return CoreEvent(
        kind=clean(str(about.get("kind", "")), 100),
        key=clean(f"{namespace}/{name}" if namespace else name, 400),
        reason=clean(str(document.get("reason", "")), 200),
        message=clean(str(document.get("message", ""))),
        warning=document.get("type") == "Warning",
        time=_when(document, now),
    )


def _when(document: dict[str, Any], now: Time) -> Time:
    series = document.get("series")
    last = series.get("lastObservedTime") if isinstance(series, dict) else None
    for text in (last, document.get("lastTimestamp"), document.get("eventTime"), document.get("firstTimestamp")):
        if isinstance(text, str):
            try:
                return min(now, parse_time(text))
            except (ValueError, OverflowError):
                continue
    return now


class ObjectChanged(Struct, frozen=True):
    """An object was added or changed. `listed` marks one that existed before the watch.

    `document` is the object as it was decoded, for a recording.
    """

    time: Time
    obj: Object | CoreEvent
    listed: bool = False
    document: dict[str, Any] | None = None


class ObjectGone(Struct, frozen=True):
    """An object was deleted. `kind` is the model's type of the object.

    `document` is the object as it was deleted, for a recording; None if only a new list shows that it is gone.
    """

    time: Time
    kind: type
    key: str
    document: dict[str, Any] | None = None


class CommandOutcome(Struct, frozen=True):
    """Outcome of a command that the console sent, as a history event."""

    line: HistoryEvent


WatchMessage = ObjectChanged | ObjectGone | CommandOutcome
Tell = Callable[[list[WatchMessage]], None]
