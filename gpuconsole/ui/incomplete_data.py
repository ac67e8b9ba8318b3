"""Hides problems of queues that only seem to be missing while a cluster is still being loaded.

Objects that are not visible (RBAC) are handled by the answers themselves (`Snapshot.seen`).
"""

from collections.abc import Sequence

from gpuconsole.insight.health.alerts import Alert, AlertKind
from gpuconsole.insight.index.quota_tree import NodeKind, QuotaNode
from gpuconsole.services.status import ConsoleStatus


def hide_incomplete_queues(roots: Sequence[QuotaNode], status: ConsoleStatus) -> Sequence[QuotaNode]:
    """The queue trees, without LocalQueues whose ClusterQueue may still be loading."""
    return [root for root in roots if not _alone(root)] if status.loading else roots


def kueue_alerts(status: ConsoleStatus) -> list[Alert]:
    """Problems of Kueue itself, for the list of problems."""
    return [Alert(trouble=AlertKind.KUEUE, text=one.text, key=one.mark.split(" for ")[0]) for one in status.kueue]


def hide_incomplete_alerts(
    troubles: Sequence[Alert], roots: Sequence[QuotaNode], status: ConsoleStatus
) -> Sequence[Alert]:
    """The problems, without those of LocalQueues whose ClusterQueue is not loaded yet."""
    if not status.loading:
        return troubles
    alone = {root.name for root in roots if _alone(root)}
    return [one for one in troubles if one.trouble is not AlertKind.QUEUE_INACTIVE or one.key not in alone]


def _alone(root: QuotaNode) -> bool:
    return root.kind is NodeKind.LOCAL_QUEUE
