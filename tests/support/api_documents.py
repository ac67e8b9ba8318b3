"""Objects as an API server sends them."""

from typing import Any

Document = dict[str, Any]
GPU = "nvidia.com/gpu"
SINCE = "2026-01-05T08:00:00Z"


def node(name: str, gpus: int = 8) -> Document:
    offer = {"cpu": "128", "memory": "2Ti", GPU: str(gpus), "pods": "110"}
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": SINCE}
    return {
        "metadata": {"name": name, "labels": {"type": "a100"}, "managedFields": [{"fieldsV1": {"f:spec": {}}}]},
        "spec": {},
        "status": {"capacity": offer, "allocatable": offer, "conditions": [ready], "images": [{"names": ["x"]}]},
    }


def pod(name: str, gpus: int = 2, *, job: str = "", node: str = "", namespace: str = "team", **more: Any) -> Document:
    owners = [{"apiVersion": "batch/v1", "kind": "Job", "name": job, "controller": True}] if job else []
    limits = {GPU: str(gpus)} if gpus else {}
    container = {"name": "main", "env": [{"name": "A", "value": "b"}], "resources": {"limits": limits}}
    meta = {"name": name, "namespace": namespace, "ownerReferences": owners, **more}
    status = {"phase": "Running" if node else "Pending"}
    return {"metadata": meta, "spec": {"containers": [container], "nodeName": node}, "status": status}


def job(name: str, gpus: int = 2, **more: Any) -> Document:
    template = {"spec": {"containers": [{"name": "main", "resources": {"limits": {GPU: str(gpus)}}}]}}
    meta = {"name": name, "namespace": "team", "labels": {"kueue.x-k8s.io/queue-name": "lq"}, **more}
    return {"metadata": meta, "spec": {"parallelism": 1, "template": template}}


def condition(type: str, status: bool = True, reason: str = "", message: str = "", since: str = SINCE) -> Document:
    word = "True" if status else "False"
    return {"type": type, "status": word, "reason": reason, "message": message, "lastTransitionTime": since}


def workload(name: str, *conditions: Document, job: str = "", gpus: int = 2, **status: Any) -> Document:
    owners = [{"apiVersion": "batch/v1", "kind": "Job", "name": job, "controller": True}] if job else []
    template = {"spec": {"containers": [{"name": "main", "resources": {"requests": {GPU: str(gpus)}}}]}}
    return {
        "metadata": {"name": name, "namespace": "team", "ownerReferences": owners, "creationTimestamp": SINCE},
        "spec": {"queueName": "lq", "podSets": [{"name": "main", "count": 1, "template": template}]},
        "status": {"conditions": list(conditions), **status},
    }


def admission(queue: str, flavor: str = "a100", gpus: int = 2) -> Document:
    assignment = {"name": "main", "flavors": {GPU: flavor}, "resourceUsage": {GPU: str(gpus)}, "count": 1}
    return {"clusterQueue": queue, "podSetAssignments": [assignment]}


def cluster_queue(name: str, gpus: int = 8) -> Document:
    flavor = {"name": "a100", "resources": [{"name": GPU, "nominalQuota": str(gpus)}]}
    group = {"coveredResources": [GPU], "flavors": [flavor]}
    return {"metadata": {"name": name}, "spec": {"namespaceSelector": {}, "resourceGroups": [group]}}


def local_queue(name: str, queue: str) -> Document:
    return {"metadata": {"name": name, "namespace": "team"}, "spec": {"clusterQueue": queue}}


def event(name: str, about: str, reason: str, message: str, at: str = SINCE) -> Document:
    return {
        "metadata": {"name": name, "namespace": "team"},
        "involvedObject": {"kind": "Workload", "namespace": "team", "name": about},
        "reason": reason,
        "message": message,
        "type": "Normal",
        "lastTimestamp": at,
    }
