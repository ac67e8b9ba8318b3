"""Volumes of a session's tasks: kube-scheduler's VolumeBinding, and volumes assumed for placed tasks.

KAI's binder binds claims after the session; here no other task of the session gets an assumed volume.
"""

from gpuconsole.scheduling.kai.api.nodes import KaiNodeInfo
from gpuconsole.scheduling.kai.api.tasks import PodInfo
from gpuconsole.scheduling.kai.session import KaiSession
from gpuconsole.scheduling.kube import volumes


def volume_refusal(session: KaiSession, task: PodInfo, node: KaiNodeInfo) -> tuple[str, ...]:
    """Why the node cannot provide or reach the volumes of the task's claims; empty if it can."""
    pod = task.spec.pod
    if not pod.template.volumes:
        return ()
    lacking = volumes.trouble(pod, session.storage)
    return (lacking,) if lacking else volumes.plan(pod, node.node, session.storage).reasons


def hold_volumes(session: KaiSession, task: PodInfo) -> None:
    """Assume the volumes of a placed task."""
    pod, seat = task.spec.pod, session.nodes.get(task.node)
    if not pod.template.volumes or seat is None or volumes.trouble(pod, session.storage):
        return
    plan = volumes.plan(pod, seat.node, session.storage)
    if plan.waits:
        session.promised[task.uid] = plan
        session.storage.hold(plan)


def release_volumes(session: KaiSession, task: PodInfo) -> None:
    """Release the volumes of a task that lost its node."""
    plan = session.promised.pop(task.uid, None)
    if plan is not None:
        session.storage.release(plan)
