"""From Volcano's API objects to ours. No API server defaulted them: what is absent is Go's zero value."""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from gpuconsole.model.clock import Time
from gpuconsole.model.cluster import Node, Pod, PriorityClass
from gpuconsole.model.manifests import decode_object
from gpuconsole.model.objects import Object
from gpuconsole.model.volcano import HyperNode, NetworkTopology, PodGroup, SubGroupPolicy, VolcanoQueue
from gpuconsole.scheduling.volcano.api.resource import Resource
from gpuconsole.scheduling.volcano.api.task import TaskInfo, TaskStatus
from tests.conformance.tables import NotModelled

Document = Mapping[str, Any]

LONG_AGO: Time = -62_135_596_800_000_000
"""Go's zero time: what an absent creationTimestamp stands for."""
VERSIONS = {
    "Pod": "v1",
    "Node": "v1",
    "ResourceQuota": "v1",
    "PodGroup": "scheduling.volcano.sh/v1beta1",
    "Queue": "scheduling.volcano.sh/v1beta1",
    "HyperNode": "topology.volcano.sh/v1alpha1",
    "PriorityClass": "scheduling.k8s.io/v1",
}


def decode(kind: str, document: Document) -> Object:
    """One object; a table may leave out its name, its version and its kind."""
    named = {"name": "unnamed", **(document.get("metadata") or {})}
    thing = decode_object({**document, "apiVersion": VERSIONS[kind], "kind": kind, "metadata": named}, now=LONG_AGO)
    if thing is None:
        raise NotModelled(kind)
    return thing


def pod(document: Document) -> Pod:
    """A pod; without spec.priority its task has Volcano's own default of 1."""
    thing = decode("Pod", document)
    assert isinstance(thing, Pod)
    if (document.get("spec") or {}).get("priority") is None:
        return replace(thing, priority=1)
    return thing


def node(document: Document) -> Node:
    thing = decode("Node", document)
    assert isinstance(thing, Node)
    return thing


def pod_group(document: Document) -> PodGroup:
    spec = document.get("spec") or {}
    thing = decode("PodGroup", {**document, "spec": {"minMember": 0, **spec}})
    assert isinstance(thing, PodGroup)
    return thing


def queue(document: Document) -> VolcanoQueue:
    spec = document.get("spec") or {}
    thing = decode("Queue", {**document, "spec": {"weight": 0, **spec}})
    assert isinstance(thing, VolcanoQueue)
    return replace(thing, weight=spec.get("weight") or 0, state=(document.get("status") or {}).get("state") or "")


def hyper_node(document: Document) -> HyperNode:
    thing = decode("HyperNode", document)
    assert isinstance(thing, HyperNode)
    return thing


def priority_class(document: Document) -> PriorityClass:
    thing = decode("PriorityClass", document)
    assert isinstance(thing, PriorityClass)
    return thing


def topology(document: Document | None) -> NetworkTopology | None:
    """A networkTopology as it stands alone."""
    return pod_group({"spec": {"networkTopology": document}}).network_topology


def sub_group(document: Document | None) -> SubGroupPolicy:
    """A subGroupPolicy as it stands alone; None asks for nothing."""
    return pod_group({"spec": {"subGroupPolicy": [document or {}]}}).sub_groups[0]


def resource(document: Document | None) -> Resource:
    """api.Resource as the tables write it."""
    values = document or {}
    scalars = values.get("ScalarResources")
    return Resource(
        float(values.get("MilliCPU", 0)),
        float(values.get("Memory", 0)),
        None if scalars is None else {name: float(value) for name, value in scalars.items()},
        int(values.get("MaxTaskNum", 0)),
    )


def task(document: Document) -> TaskInfo:
    """api.TaskInfo as the tables write it."""
    name = document.get("Name") or document.get("UID") or ""
    described = document.get("Pod") or {"metadata": {"name": name, "namespace": document.get("Namespace") or "default"}}
    result = TaskInfo(pod(described))
    result.uid, result.job = document.get("UID") or result.uid, document.get("Job", "")
    result.name, result.namespace = document.get("Name", ""), document.get("Namespace", "")
    result.key = f"{result.namespace}/{result.name}"
    result.role, result.node_name = document.get("TaskRole", ""), document.get("NodeName", "")
    if "Pod" not in document or "Resreq" in document:
        result.request = resource(document.get("Resreq"))
        result.init_request = resource(document.get("InitResreq"))
    result.status = status(document.get("Status", "Unknown"))
    result.priority = document.get("Priority", 0)
    result.preemptable = document.get("Preemptable", False)
    result.best_effort = document.get("BestEffort", False)
    result.gated = document.get("SchGated", False)
    result.revocable_zone = document.get("RevocableZone", "")
    return result


def status(name: str) -> TaskStatus:
    return TaskStatus[name.upper()]


def tasks(documents: Iterable[Document] | None) -> list[TaskInfo]:
    """The tasks of pods."""
    return [TaskInfo(pod(document)) for document in documents or ()]
