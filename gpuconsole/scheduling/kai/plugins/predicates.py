"""predicates and dynamicresources plugins: which nodes fit a task, and the devices of its claims (KAI 0.13 plugins).

Pod affinity, volumes and host ports are checked by kube-scheduler's filters over the tasks of the session. KAI's binder
binds volumes after the session; here no other task of the session gets a volume that is assumed for a placed task.
"""

from collections.abc import Iterator

from gpuconsole.scheduling.devices.allocator import MAX_USERS
from gpuconsole.scheduling.kai.api.jobs import PodGroupInfo
from gpuconsole.scheduling.kai.api.nodes import (
    KaiNodeInfo,
    node_matches_selector,
    not_ready_conditions,
    request_quota,
    untolerated_taint,
)
from gpuconsole.scheduling.kai.api.tasks import (
    PODS,
    ClaimInfo,
    ClaimRef,
    GpuRequestType,
    PodInfo,
    ResourceAmounts,
    ResourceRequirements,
)
from gpuconsole.scheduling.kai.config import KaiPluginArguments
from gpuconsole.scheduling.kai.fair_share.division import GPU_WORKER_LABEL
from gpuconsole.scheduling.kai.job_placement import choose_gpus
from gpuconsole.scheduling.kai.messages import NodeError, format_decimals, format_number
from gpuconsole.scheduling.kai.session import WHOLE_GPU, KaiSession
from gpuconsole.scheduling.kube import inter_pod_affinity, volumes
from gpuconsole.scheduling.kube.inter_pod_affinity import InterPodAffinityState, StaticPodLister, affinity_counts
from gpuconsole.scheduling.kube.plugins.framework import host_port_conflict


class InterPodAffinityChecker:
    """Checks required pod affinity and anti-affinity of tasks; caches the counts until a node changes. Mutates."""

    def __init__(self, session: KaiSession) -> None:
        self._session = session
        self._cached: tuple[str, int, InterPodAffinityState] | None = None

    def refusal(self, task: PodInfo, node: KaiNodeInfo) -> str:
        """Why other pods exclude the node for the task; empty if they do not."""
        if not self._session.has_pod_affinity:
            return ""
        return inter_pod_affinity.refusal(task.spec.pod, node.node, self._affinity_counts(task))

    def _affinity_counts(self, task: PodInfo) -> InterPodAffinityState:
        known, now = self._cached, len(self._session.changes)
        if known is None or known[:2] != (task.uid, now):
            found = affinity_counts(task.spec.pod, pods_except(self._session, task))
            known = self._cached = task.uid, now, found
        return known[2]


def pods_except(session: KaiSession, task: PodInfo) -> StaticPodLister:
    """The session's nodes with their pods, without the task itself, as kube-scheduler's filters read them."""
    seats = session.nodes
    return StaticPodLister(
        {name: seat.node for name, seat in seats.items()},
        lambda name: [other.spec.pod for other in seats[name].tasks.values() if other.uid != task.uid],
    )


def volume_refusal(session: KaiSession, task: PodInfo, node: KaiNodeInfo) -> tuple[str, ...]:
    """Why the node rejects the task because of its volume claims; empty if it does not."""
    pod = task.spec.pod
    if not pod.template.volumes:
        return ()
    lacking = volumes.prefilter_rejection(pod, session.storage)
    return (lacking,) if lacking else volumes.plan_volumes(pod, node.node, session.storage).reasons


def assume_volumes(session: KaiSession, task: PodInfo) -> None:
    """Assume that a placed task has its volumes, so that no other task gets them."""
    pod, seat = task.spec.pod, session.nodes.get(task.node)
    if not pod.template.volumes or seat is None or volumes.prefilter_rejection(pod, session.storage):
        return
    plan = volumes.plan_volumes(pod, seat.node, session.storage)
    if plan.needs_binding:
        session.assumed_volumes[task.uid] = plan
        session.storage.assume(plan)


def forget_assumed_volumes(session: KaiSession, task: PodInfo) -> None:
    """Undo `assume_volumes` for a task that lost its node."""
    plan = session.assumed_volumes.pop(task.uid, None)
    if plan is not None:
        session.storage.forget_assumed(plan)


PREDICATES = (
    *("QueueCapacity", "NodeResourcesType", "GpuMemorySynced", "MaxPods", "NodeConditions", "TaintToleration"),
    *("NodeAffinity", "PodAffinity", "DynamicResources", "VolumeBinding", "PodFitsHostPorts", "RestrictNodes"),
)
TOO_MANY_PODS = "node(s) pod number exceeded"
NO_AFFINITY = "node(s) didn't match Pod's node affinity/selector"
CPU_WORKER_LABEL = "node-role.kubernetes.io/cpu-worker"


class Predicates:
    """predicates plugin: checks whether a node fits a task, and assumes the volumes of placed tasks. Mutates."""

    def __init__(self, arguments: KaiPluginArguments) -> None:
        self._largest_by_resource = ResourceAmounts()

    def open(self, session: KaiSession) -> None:
        self._largest_by_resource = ResourceAmounts()
        for node in session.nodes.values():
            self._largest_by_resource.set_max(node.allocatable)
        self._inter_pod_affinity = InterPodAffinityChecker(session)
        session.functions.pre_predicates.append(lambda task, job: self._refusal(session, task))
        session.functions.predicates.append(lambda task, job, node: self._first_error(session, task, job, node))
        session.functions.node_only_predicates.append(node_accepts)
        session.functions.all_predicate_errors.append(
            lambda task, job, node: self._all_errors(session, task, job, node)
        )
        session.functions.on_allocate.append(lambda task: assume_volumes(session, task))
        session.functions.on_deallocate.append(lambda task: forget_assumed_volumes(session, task))

    def _refusal(self, session: KaiSession, task: PodInfo) -> str | None:
        """Why the task fits no node at all; None if it may fit one."""
        lines = [
            f"{name}: {reason}.\n"
            for name, reason in (
                ("DynamicResources", claim_error(session, task)),
                ("VolumeBinding", volumes.prefilter_rejection(task.spec.pod, session.storage)),
                (
                    "MaxNodePoolResources",
                    too_large_message(task, self._largest_by_resource, session.parameters.node_pool),
                ),
            )
            if reason
        ]
        if not lines:
            return None
        return f"Scheduling conditions were not met for pod {task.namespace}/{task.name}:\n{''.join(lines)}"

    def _first_error(
        self, session: KaiSession, task: PodInfo, job: PodGroupInfo, node: KaiNodeInfo
    ) -> NodeError | None:
        return next((error for _, error in self._all_errors(session, task, job, node)), None)

    def _all_errors(
        self, session: KaiSession, task: PodInfo, job: PodGroupInfo, node: KaiNodeInfo
    ) -> Iterator[tuple[str, NodeError]]:
        """All errors of the node for the task, by predicate, in KAI's order."""
        over = session.find_exceeded_capacity_on_node(task, job, node)
        if over is not None:
            text = f"node does not have enough capacity. Reason: {over.reason}, Details: {over.message}"
            yield "QueueCapacity", NodeError((text,))
        sort = gpu_type_mismatch(task, node)
        if sort:
            yield "NodeResourcesType", NodeError((sort,))
        if task.request.gpu_memory > 0 and not node.has_gpu_memory_label:
            yield "GpuMemorySynced", NodeError((_gpu_memory_unknown_message(task, node),))
        if not _has_pods_left(session, task, node):
            yield "MaxPods", NodeError((TOO_MANY_PODS,))
        if reasons := not_ready_conditions(node.node):
            yield "NodeConditions", NodeError(reasons)
        if taint := untolerated_taint(task.spec, node.node):
            yield "TaintToleration", NodeError((f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}",))
        if not node_matches_selector(task.spec, node.node):
            yield "NodeAffinity", NodeError((NO_AFFINITY,))
        if trouble := self._inter_pod_affinity.refusal(task, node):
            yield "PodAffinity", NodeError((trouble,))
        if task.spec.claims and not can_allocate_claims(session, task, node):
            yield "DynamicResources", NodeError(("cannot allocate all claims",))
        if reasons := volume_refusal(session, task, node):
            yield "VolumeBinding", NodeError(reasons)
        if port := host_port_conflict(
            task.spec.pod, (one.spec.pod for one in node.tasks.values() if one.uid != task.uid)
        ):
            yield "PodFitsHostPorts", NodeError((port,))
        if session.parameters.restrict_nodes and (text := _worker_mismatch(task, node)):
            yield "RestrictNodes", NodeError((text,))


def node_accepts(task: PodInfo, node: KaiNodeInfo) -> bool:
    """True if the node's conditions, labels and taints accept the task."""
    if not_ready_conditions(node.node) or untolerated_taint(task.spec, node.node) is not None:
        return False
    return node_matches_selector(task.spec, node.node)


def gpu_type_mismatch(task: PodInfo, node: KaiNodeInfo) -> str:
    """Why the node's kind of GPUs does not match the task; empty if it does (PredicateByNodeResourcesType)."""
    if task.legacy_mig:
        return f"Legacy MIG jobs cannot be scheduled on node {node.name}"
    if not task.needs_gpu:
        return ""
    if task.request.gpus > 0 and node.dra_gpus:
        return "device-plugin GPU requests cannot be scheduled on DRA-only nodes"
    mig = task.gpu_request_type is GpuRequestType.MIG
    if not node.is_mig_enabled:
        return "MIG job cannot be scheduled on non-MIG node" if mig else ""
    if mig and node.legacy_mig:
        return f"MIG job cannot be scheduled on node with legacy MIG jobs: <[{' '.join(node.legacy_mig.values())}]>"
    if node.mig_strategy == "single" and task.gpu_request_type is not GpuRequestType.REGULAR:
        return "only whole gpu jobs can run on a node with MigStrategy='single'"
    if node.mig_strategy == "mixed" and not mig:
        return "non MIG jobs cant run on a node with MigStrategy='mixed'"
    return ""


def _gpu_memory_unknown_message(task: PodInfo, node: KaiNodeInfo) -> str:
    return (
        "node is not a gpu node or the gpu memory count on the node was not synced yet,"
        f" task: <{task.namespace}/{task.name}>, node: <{node.name}>"
    )


def _has_pods_left(session: KaiSession, task: PodInfo, node: KaiNodeInfo) -> bool:
    """True if the node can run one more pod, or two if a GPU begins to be shared: KAI reserves it with a pod."""
    left = node.idle_or_releasing_of(PODS)
    if not task.is_fractional:
        return left > 0
    return left >= 2 or not _starts_sharing_gpu(session, task, node)


def _starts_sharing_gpu(session: KaiSession, task: PodInfo, node: KaiNodeInfo) -> bool:
    fitting = session.gpus_for_sharing(task, node)
    now = choose_gpus(fitting, node, task, lambda: WHOLE_GPU, only_pipeline=False)
    chosen = now if now is not None and not now.releasing else None
    if chosen is None:
        chosen = choose_gpus(fitting, node, task, lambda: WHOLE_GPU, only_pipeline=True)
    return chosen is None or WHOLE_GPU in chosen.groups or not all(g.isdigit() for g in chosen.groups)


def _worker_mismatch(task: PodInfo, node: KaiNodeInfo) -> str:
    where = f"task: <{task.namespace}/{task.name}> can't run on non"
    if task.needs_gpu:
        return "" if GPU_WORKER_LABEL in node.node.labels else f"gpu {where} gpu nodes, node: <{node.name}>"
    return "" if CPU_WORKER_LABEL in node.node.labels else f"cpu {where} cpu nodes, node: <{node.name}>"


def too_large_message(task: PodInfo, largest: ResourceAmounts, pool: str) -> str:
    """KAI's text for the first resource of which no node of the pool has as much as the task requests; empty if none.

    MaxNodePoolResources; `largest` has the largest amount of each resource.
    """
    request = task.request
    gpus = request.gpus + request.dra_gpus
    if gpus > largest.gpus:
        return _too_large_text(task, "GPU", largest.gpus, "", pool)
    if request.cpu > largest.cpu:
        return _too_large_text(task, "CPU", largest.cpu / 1000, "cores", pool)
    if request.memory > largest.memory:
        return _too_large_text(task, "memory", largest.memory / 1e9, "GB", pool)
    for name, count in request.scalars.items():
        if name not in largest.scalars or count > largest.scalars[name]:
            storage = name in ("ephemeral-storage", "storage")
            most = largest.scalars.get(name, 0) / 1e9 if storage else 0
            return _too_large_text(task, name, most, "GB" if storage else "", pool)
    return ""


def _too_large_text(task: PodInfo, name: str, most: float, unit: str, pool: str) -> str:
    needs = f"The pod {task.namespace}/{task.name} requires {request_text(task.request)}. "
    where = f"{pool or 'default'} node-pool"
    if most == 0:
        return f"{needs}No node in the {where} has {name} resources"
    text = f"{needs}Max {name} resources available in a single node in the {where} is topped at {format_decimals(most)}"
    return f"{text} {unit}" if unit else text


def request_text(request: ResourceRequirements) -> str:
    """All amounts of a request as text, as KAI prints them."""
    parts = [
        f"GPU: {format_number(request_quota(request))}, CPU: {format_number(request.cpu, 1000)} (cores),"
        f" memory: {format_number(request.memory, 1e9)} (GB)"
    ]
    for name, count in request.scalars.items():
        storage = name in ("ephemeral-storage", "storage")
        parts.append(f"{name}: {count // 1_000_000_000} (GB)" if storage else f"{name}: {count}")
    parts += [f"mig {name}: {count}" for name, count in request.mig.items()]
    return ", ".join(parts)


def claim_of(session: KaiSession, task: PodInfo, reference: ClaimRef) -> ClaimInfo | None:
    """The claim that the task refers to; None if it does not exist."""
    return session.claims.claims.get(f"{task.namespace}/{reference.claim}")


def claim_error(session: KaiSession, task: PodInfo) -> str:
    """Why the pod's claims make it unschedulable on every node; empty if they do not."""
    for reference in task.spec.claims:
        if claim_of(session, task, reference) is None:
            return f'waiting for resource claim "{reference.claim or reference.name}" to be created'
    return ""


def can_allocate_claims(session: KaiSession, task: PodInfo, node: KaiNodeInfo) -> bool:
    """True if the node has devices for every claim of the task; allocated devices must be on it."""
    held = session.claims
    for reference in task.spec.claims:
        claim = claim_of(session, task, reference)
        if claim is None:
            return False
        if claim.devices is not None:
            if any(device.node and device.node != node.name for device in claim.devices):
                return False
        elif held.find(claim, node.name) is None:
            return False
    return True


class DynamicResourcesPlugin:
    """dynamicresources plugin: allocates devices to claims as tasks are placed, and releases them on eviction."""

    def __init__(self, arguments: KaiPluginArguments) -> None:
        pass

    def open(self, session: KaiSession) -> None:
        session.functions.pre_predicates.append(lambda task, job: claims_refusal(session, task, job))
        session.functions.on_allocate.append(lambda task: _allocate(session, task))
        session.functions.on_deallocate.append(lambda task: _deallocate(session, task))


def claims_refusal(session: KaiSession, task: PodInfo, job: PodGroupInfo) -> str | None:
    """Why dynamicresources rejects the task for all nodes: a claim cannot be used; None if all can."""
    for reference in task.spec.claims:
        if not reference.claim:
            pod = f"{task.namespace}/{task.name}"
            return f"no resource claim name found for pod {pod} and claim reference {reference.name}"
        claim = claim_of(session, task, reference)
        key = f"{task.namespace}/{reference.claim}"
        if claim is None:
            return f'failed to get resource claim {key}: could not find ResourceClaim "{key}"'
        if len(claim.reserved) >= MAX_USERS:
            return f"resource claim {key} has reached its maximum number of consumers ({MAX_USERS})"
        text = _claim_queue_mismatch(claim, reference, job, session.parameters.queue_label)
        if text:
            return f"pod {task.namespace}/{task.name} cannot be scheduled: {text}"
    return None


def _claim_queue_mismatch(claim: ClaimInfo, reference: ClaimRef, job: PodGroupInfo, label: str) -> str:
    """A claim for GPUs that pods share must name the queue of the job."""
    if reference.template or not claim.is_gpu_claim:
        return ""
    queue = claim.labels.get(label, "")
    if not queue:
        return f"DRA claim {claim.name} is a shared GPU claim but does not have a queue label ({label})"
    if queue != job.queue:
        return (
            f"DRA claim {claim.name} is a shared GPU claim with wrong queue label"
            f" (expected queue: {job.queue}, claim queue label: {queue})"
        )
    return ""


def _allocate(session: KaiSession, task: PodInfo) -> None:
    """Allocate devices of its node to the task's claims: those that it had, or else those that the index finds."""
    for reference in task.spec.claims:
        claim = claim_of(session, task, reference)
        if claim is None:
            continue
        devices = task.devices.get(reference.name) or claim.devices
        if devices is None:
            devices = session.claims.find(claim, task.node)
        if devices is None:
            continue
        session.claims.reserve(claim.key, task.uid, devices)
        task.devices = {**task.devices, reference.name: devices}


def _deallocate(session: KaiSession, task: PodInfo) -> None:
    for reference in task.spec.claims:
        claim = claim_of(session, task, reference)
        if claim is not None:
            session.claims.release(claim.key, task.uid)
            left = session.claims.claims[claim.key].devices
            kept = {name: devices for name, devices in task.devices.items() if name != reference.name}
            task.devices = {**kept, reference.name: left} if left is not None else kept
