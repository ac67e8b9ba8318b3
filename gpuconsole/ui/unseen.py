"""What is not read is not missing: queues and troubles as somebody may tell them who sees a part of a cluster.

A part is all that some people may see, and all that there is to see while a cluster is read for the first time.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from gpuconsole.insight.quota_node import NodeKind, QuotaNode
from gpuconsole.insight.trouble import Attention, Trouble
from gpuconsole.services.status import Status


def honest_queues(roots: Sequence[QuotaNode], status: Status) -> Sequence[QuotaNode]:
    """The trees; of a LocalQueue that has none above it, that its ClusterQueue is unseen where that is so.

    As long as its ClusterQueue may come, it is left out.
    """
    if status.loading:
        return [root for root in roots if not _alone(root)]
    why = status.unseen({"clusterqueues"})
    if not why:
        return roots
    return [replace(root, problem=f"its ClusterQueue is unseen: {why}") if _alone(root) else root for root in roots]


def honest_troubles(troubles: Sequence[Attention], roots: Sequence[QuotaNode], status: Status) -> Sequence[Attention]:
    """The troubles without those of LocalQueues whose ClusterQueue is only unseen, or not read yet."""
    if not (status.loading or status.unseen({"clusterqueues"})):
        return troubles
    alone = {root.name for root in roots if _alone(root)}
    return [one for one in troubles if one.trouble is not Trouble.ADMITS_NOBODY or one.key not in alone]


def _alone(root: QuotaNode) -> bool:
    return root.kind is NodeKind.LOCAL_QUEUE
