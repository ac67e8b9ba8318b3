"""dynamicresources plugin: allocates devices to claims as tasks are placed, and releases them on eviction (KAI
0.13).
"""

from gpuconsole.scheduling.devices.dra_inventory import MOST_USERS
from gpuconsole.scheduling.kai.api.claims import ClaimInfo
from gpuconsole.scheduling.kai.api.jobs import PodGroupInfo
from gpuconsole.scheduling.kai.api.tasks import ClaimRef, PodInfo
from gpuconsole.scheduling.kai.conf import KaiPluginArguments
from gpuconsole.scheduling.kai.plugins.claims import claim_of
from gpuconsole.scheduling.kai.session import KaiSession


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
