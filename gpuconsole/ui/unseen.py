"""What is not read yet is not missing: queues and troubles while a cluster is read for the first time.

What may not be read at all is told by the answers themselves (`Snapshot.seen`).
"""

from collections.abc import Sequence

from gpuconsole.insight.quota_node import NodeKind, QuotaNode
from gpuconsole.insight.trouble import Attention, Trouble
from gpuconsole.services.status import Status


def honest_queues(roots: Sequence[QuotaNode], status: Status) -> Sequence[QuotaNode]:
    """The trees without LocalQueues that have none above them, as long as their ClusterQueues may come."""
    return [root for root in roots if not _alone(root)] if status.loading else roots


def kueue_troubles(status: Status) -> list[Attention]:
    """What is wrong with Kueue itself, as lines of the list of troubles."""
    return [Attention(trouble=Trouble.KUEUE, text=one.text, key=one.mark.split(" for ")[0]) for one in status.kueue]


def honest_troubles(troubles: Sequence[Attention], roots: Sequence[QuotaNode], status: Status) -> Sequence[Attention]:
    """The troubles without those of LocalQueues whose ClusterQueue is not read yet."""
    if not status.loading:
        return troubles
    alone = {root.name for root in roots if _alone(root)}
    return [one for one in troubles if one.trouble is not Trouble.ADMITS_NOBODY or one.key not in alone]


def _alone(root: QuotaNode) -> bool:
    return root.kind is NodeKind.LOCAL_QUEUE
