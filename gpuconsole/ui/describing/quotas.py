"""Descriptions of queues, cohorts and the objects that they reference."""

from gpuconsole.model.queues import (
    AdmissionCheck,
    ClusterQueue,
    Cohort,
    LocalQueue,
    Quota,
    ResourceFlavor,
    Topology,
)
from gpuconsole.model.resources import BILLIONTH, format_quantity, is_binary, short
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.scheduling.kueue.cluster_queue_status import active_condition, using_check, using_flavor, using_topology
from gpuconsole.ui.paint import Painted
from gpuconsole.ui.widgets.textpane import BLANK, field, heading, text_line


def active(snapshot: Snapshot, queue: ClusterQueue) -> list[Painted]:
    """The Active condition of a ClusterQueue."""
    ready = active_condition(queue, snapshot, seen=snapshot.seen)
    return [field("Active", f"{ready.active} · {ready.reason} · {ready.message}")]


def users(snapshot: Snapshot, obj: object) -> list[Painted]:
    """The ClusterQueues that reference this object; they stop admitting if it is deleted."""
    queues = list(snapshot.cluster_queues.all())
    match obj:
        case ResourceFlavor():
            names = using_flavor(queues, obj.name)
        case AdmissionCheck():
            names = using_check(queues, obj.name)
        case Topology():
            names = using_topology(queues, snapshot.flavors.all(), obj.name)
        case _:
            return []
    return [field("Used by", ", ".join(sorted(names)) or "no ClusterQueue")]


def quota_owner(owner: ClusterQueue | Cohort) -> list[Painted]:
    """Policies and quotas of a ClusterQueue or a cohort."""
    lines = [field("Fair weight", owner.fair_weight)]
    if isinstance(owner, ClusterQueue):
        lines += [
            field("Cohort", owner.cohort or "none"),
            field("Strategy", owner.queueing_strategy),
            field("Stop policy", owner.stop_policy),
            field("Within queue", owner.preemption.within_cluster_queue),
            field("Reclaim", owner.preemption.reclaim_within_cohort),
            field("While borrowing", owner.preemption.borrow_within_cohort.policy),
        ]
        if owner.namespace_selector is None:
            lines.append(field("Namespaces", "none: without a namespaceSelector it admits no workload"))
    else:
        lines.append(field("Parent", owner.parent or "none"))
    lines += [BLANK, heading("Quotas")]
    return [*lines, *(_quota(flavor, resource, quota) for (flavor, resource), quota in owner.quotas().items())]


def _quota(flavor: str, resource: str, quota: Quota) -> Painted:
    limits = (("borrows up to", quota.borrowing_limit), ("lends up to", quota.lending_limit))
    extra = "".join(f", {name} {format_quantity(resource, limit)}" for name, limit in limits if limit is not None)
    return text_line(f"  {flavor:<18} {resource:<16} {format_quantity(resource, quota.nominal)}{extra}")


def used_lately(queue: LocalQueue) -> list[Painted]:
    """Recent usage of a LocalQueue, where admission fair sharing orders LocalQueues by it."""
    if queue.usage is None:
        return []
    amounts = (_lately(name, queue.consumed[name] / BILLIONTH) for name in short(queue.consumed))
    return [
        field("Usage", f"{queue.usage:.3g} (the LocalQueue with the lowest usage is admitted first)"),
        field("Recent usage", ", ".join(amounts) or "none"),
    ]


def _lately(resource: str, amount: float) -> str:
    return f"{resource} {amount / 2**30:.2f}Gi" if is_binary(resource) else f"{resource} {amount:.2f}"
