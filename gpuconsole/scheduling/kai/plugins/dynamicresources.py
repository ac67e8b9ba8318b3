"""dynamicresources plugin: allocates devices to claims as tasks are placed, and releases them on eviction (KAI
0.13).

Checks of a task's resource claims: errors, and nodes that have the devices (KAI 0.13, DRA).
"""

from gpuconsole.scheduling.devices.dra_inventory import MOST_USERS
from gpuconsole.scheduling.kai.api.jobs import PodGroupInfo
from gpuconsole.scheduling.kai.api.nodes import KaiNodeInfo
from gpuconsole.scheduling.kai.api.tasks import ClaimInfo, ClaimRef, PodInfo
from gpuconsole.scheduling.kai.config import KaiPluginArguments
from gpuconsole.scheduling.kai.session import KaiSession


def claim_of(session: KaiSession, task: PodInfo, reference: ClaimRef) -> ClaimInfo | None:
    """The claim that the task refers to; None if it does not exist."""
    return session.claims.claims.get(f"{task.namespace}/{reference.claim}")


def claim_error(session: KaiSession, task: PodInfo) -> str:
    """Why the pod's claims make it unschedulable on every node; empty if they do not."""
    for reference in task.spec.claims:
        if claim_of(session, task, reference) is None:
            return f'waiting for resource claim "{reference.claim or reference.name}" to be created'
    return ""


def claims_fit(session: KaiSession, task: PodInfo, node: KaiNodeInfo) -> bool:
    """True if the node has devices for every claim; those already allocated must be on it."""
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
    """Registers the check of claims, and the allocation and release of their devices."""

    def __init__(self, arguments: KaiPluginArguments) -> None:
        pass

    def open(self, session: KaiSession) -> None:
        session.functions.pre_predicates.append(lambda task, job: refuse(session, task, job))
        session.functions.allocated.append(lambda task: _allocate(session, task))
        session.functions.deallocated.append(lambda task: _deallocate(session, task))


def refuse(session: KaiSession, task: PodInfo, job: PodGroupInfo) -> str | None:
    """Why a claim of the task cannot be used; None if all can."""
    for reference in task.spec.claims:
        if not reference.claim:
            pod = f"{task.namespace}/{task.name}"
            return f"no resource claim name found for pod {pod} and claim reference {reference.name}"
        claim = claim_of(session, task, reference)
        key = f"{task.namespace}/{reference.claim}"
        if claim is None:
            return f'failed to get resource claim {key}: could not find ResourceClaim "{key}"'
        if len(claim.reserved) >= MOST_USERS:
            return f"resource claim {key} has reached its maximum number of consumers ({MOST_USERS})"
        text = _wrong_queue(claim, reference, job, session.parameters.queue_label)
        if text:
            return f"pod {task.namespace}/{task.name} cannot be scheduled: {text}"
    return None


def _wrong_queue(claim: ClaimInfo, reference: ClaimRef, job: PodGroupInfo, label: str) -> str:
    """A claim for GPUs that pods share must name the queue of the job."""
    if reference.template or not claim.gpu:
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
    """Allocate devices of its node to the task's claims: earlier ones if it had any, else the first free ones."""
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
