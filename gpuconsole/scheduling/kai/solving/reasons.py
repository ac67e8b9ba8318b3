"""Eviction messages for victims (KAI 0.13 actions/utils GetMessageOfEviction)."""

from gpuconsole.scheduling.kai import messages
from gpuconsole.scheduling.kai.api.jobs import PodGroupInfo
from gpuconsole.scheduling.kai.api.tasks import PodInfo
from gpuconsole.scheduling.kai.session import KaiSession


def eviction_message(session: KaiSession, action: str, victim: PodInfo, preemptor: PodGroupInfo) -> str:
    """The message of the eviction; for a reclaim, with the usage and quota of both queues."""
    pod, by = f"{victim.namespace}/{victim.name}", f"{preemptor.namespace}/{preemptor.name}"
    match action:
        case "preempt":
            return messages.preempted(pod, by)
        case "consolidation":
            return messages.consolidated(pod)
    return f"{messages.reclaimed(pod, by)}\n{_queues(session, victim, preemptor)}"


def _queues(session: KaiSession, victim: PodInfo, preemptor: PodGroupInfo) -> str:
    queues = session.queues
    mine, theirs = queues[preemptor.queue], queues[session.jobs[victim.job].queue]
    if mine.parent != theirs.parent:
        mine, theirs = queues.get(mine.parent, mine), queues.get(theirs.parent, theirs)
    return f"{session.queue_use(theirs)}\n{session.queue_use(mine)}"
