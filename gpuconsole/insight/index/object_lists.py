"""Rows of the lists of objects: the pods of the cluster with their queues."""

from collections.abc import Collection

from gpuconsole.insight.index.gpu_time import queue_among
from gpuconsole.model.cluster import Pod
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.scheduling.queue_names import group_key, own_queue


def listed_pods(snapshot: Snapshot, namespaces: Collection[str] = ()) -> list[Pod]:
    """Return the pods of these namespaces (empty: all) by namespace and name, those that have ended last."""
    pods = [pod for pod in snapshot.pods.all() if not namespaces or pod.namespace in namespaces]
    return sorted(pods, key=lambda pod: (pod.done, pod.namespace, pod.name))


def queue_of_pod(snapshot: Snapshot, pod: Pod) -> str:
    """Return the queue of a pod: Kueue's ClusterQueue, else Volcano's or KAI's queue; may be empty."""
    workload = snapshot.workloads.get(pod.workload) if pod.workload else None
    groups = snapshot.kai_pod_groups.get, snapshot.pod_groups.get
    return queue_among(workload, group_key(pod), own_queue(pod), *groups, snapshot.volcano_queues.get)
