"""Queues and PodGroups of Volcano and of the Coscheduling plugin."""

from gpuconsole.model.clock import Time
from gpuconsole.model.documents.amounts import resources
from gpuconsole.model.documents.metadata import metadata, spec_of
from gpuconsole.model.documents.reader import INT32, Reader
from gpuconsole.model.volcano import PodGroup, VolcanoQueue

_QUEUE_FIELDS = (
    *("affinity", "capability", "dequeueStrategy", "deserved", "extendClusters", "guarantee", "parent", "priority"),
    *("reclaimable", "type", "weight"),
)
_GROUP_FIELDS = (
    *("minMember", "minResources", "minTaskMember", "networkTopology", "priorityClassName", "queue"),
    "subGroupPolicy",
)
_COSCHEDULING_FIELDS = ("minMember", "minResources", "scheduleTimeoutSeconds")
HEAVIEST = 65535


def volcano_queue(reader: Reader, now: Time) -> VolcanoQueue:
    """A Volcano Queue; it is read and validated, Volcano's engine acts on it."""
    meta = metadata(reader, now, namespaced=False)
    spec = spec_of(reader, *_QUEUE_FIELDS)
    spec.one_of("dequeueStrategy", "", ("fifo", "traverse"))
    queue = VolcanoQueue(
        name=meta.name,
        weight=spec.number("weight", 1, low=1, high=HEAVIEST),
        parent=spec.text("parent"),
        capability=resources(spec, "capability"),
        deserved=resources(spec, "deserved"),
        guarantee=resources(spec.mapping("guarantee"), "resource"),
        reclaimable=spec.flag("reclaimable", True),
        priority=spec.number("priority", 0, low=0),
    )
    for name, amount in queue.deserved.items():
        most = queue.capability.get(name)
        if most is not None and amount > most:
            problem = f"deserved {name} is more than the queue's capability"
            spec.report.refused(spec.at("deserved", name), problem, "lower it, or raise capability", "bad-queue")
    for name, amount in queue.guarantee.items():
        most = queue.deserved.get(name)
        if most is not None and amount > most:
            problem = f"guarantee of {name} is more than the queue deserves"
            path = spec.at("guarantee", "resource", name)
            spec.report.refused(path, problem, "lower it, or raise deserved", "bad-queue")
    return queue


def pod_group(reader: Reader, now: Time) -> PodGroup:
    """A PodGroup of Volcano: minMember pods start together."""
    return _group(reader, now, _GROUP_FIELDS)


def coscheduling_group(reader: Reader, now: Time) -> PodGroup:
    """A PodGroup of the Coscheduling plugin (scheduling.x-k8s.io)."""
    return _group(reader, now, _COSCHEDULING_FIELDS)


def _group(reader: Reader, now: Time, fields: tuple[str, ...]) -> PodGroup:
    meta = metadata(reader, now)
    spec = reader.mapping("spec")
    spec.only(*fields)
    return PodGroup(
        namespace=meta.namespace,
        name=meta.name,
        min_member=spec.number("minMember", 1, low=0, high=INT32),
        queue=spec.text("queue"),
        priority_class=spec.text("priorityClassName"),
        min_resources=resources(spec, "minResources"),
    )
