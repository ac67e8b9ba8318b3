"""Hides problems of queues that only seem to be missing while a cluster is still being loaded.

Objects that are not visible (RBAC) are handled by the answers themselves (`Snapshot.seen`).
"""

from collections.abc import Sequence

from gpuconsole.insight.quota_node import NodeKind, QuotaNode
from gpuconsole.insight.trouble import Attention, Trouble
from gpuconsole.services.status import Status


def honest_queues(roots: Sequence[QuotaNode], status: Status) -> Sequence[QuotaNode]:
    """The queue trees, without LocalQueues whose ClusterQueue may still be loading."""
    return [root for root in roots if not _alone(root)] if status.loading else roots


def kueue_troubles(status: Status) -> list[Attention]:
    """Problems of Kueue itself, for the list of problems."""
    return [Attention(trouble=Trouble.KUEUE, text=one.text, key=one.mark.split(" for ")[0]) for one in status.kueue]


def honest_troubles(troubles: Sequence[Attention], roots: Sequence[QuotaNode], status: Status) -> Sequence[Attention]:
    """The problems, without those of LocalQueues whose ClusterQueue is not loaded yet."""
    if not status.loading:
        return troubles
    alone = {root.name for root in roots if _alone(root)}
    return [one for one in troubles if one.trouble is not Trouble.ADMITS_NOBODY or one.key not in alone]


def _alone(root: QuotaNode) -> bool:
    return root.kind is NodeKind.LOCAL_QUEUE
