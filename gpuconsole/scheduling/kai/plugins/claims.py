"""Checks of a task's resource claims: errors, and nodes that have the devices (KAI 0.13, DRA)."""

from gpuconsole.scheduling.kai.api.claims import ClaimInfo
from gpuconsole.scheduling.kai.api.nodes import KaiNodeInfo
from gpuconsole.scheduling.kai.api.tasks import ClaimRef, PodInfo
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
