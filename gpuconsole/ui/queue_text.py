"""Lines about one queue: its problems, available quota, limits and policy."""

from collections.abc import Sequence

from gpuconsole.insight.health.alerts import starved_text
from gpuconsole.insight.index.available_quota import UsableQuota
from gpuconsole.insight.index.quota_tree import NodeKind, QuotaUse
from gpuconsole.insight.tables import counted
from gpuconsole.model.clock import Time
from gpuconsole.model.device_units import DRA_DEVICE, WHOLE_GPU, is_counted
from gpuconsole.model.resources import CPU, EPHEMERAL_STORAGE, MEMORY, PODS
from gpuconsole.ui import format as fmt
from gpuconsole.ui.paint import Cell
from gpuconsole.ui.screens.queue_rows import GPUS, TreeRow

KINDS = {
    NodeKind.COHORT: "cohort",
    NodeKind.CLUSTER_QUEUE: "ClusterQueue",
    NodeKind.LOCAL_QUEUE: "LocalQueue",
    NodeKind.VOLCANO_QUEUE: "Volcano queue",
    NodeKind.KAI_QUEUE: "KAI queue",
    NodeKind.NAMESPACE: "namespace",
}
KUEUES = (NodeKind.COHORT, NodeKind.CLUSTER_QUEUE, NodeKind.LOCAL_QUEUE)
"""Kinds that belong to Kueue; the others are shown only."""


def about(row: TreeRow, quotas: Sequence[UsableQuota] = (), now: Time = 0, shut: str = "") -> tuple[Cell, ...]:
    """Lines about the queue under the cursor: problems, available quota per flavor, limits, policy.

    `quotas` are those of a ClusterQueue; `shut` says why it, or the LocalQueue, admits no workloads, if so.
    """
    node, use, resource = row.node, row.use, row.resource
    kind = KINDS[node.kind]
    shown = [one for one in quotas if resource in (GPUS, one.resource) and not row.flavor]
    could = _shut(row, shut) if shut else _could(row, shown)
    reserved = use.used - use.admitted
    only = f" · {fmt.amount(resource, reserved)} reserved, not admitted" if reserved else ""
    first: Cell = ((f" {kind} ", "dim"), (node.name, "strong"), (f"  {_subject(row)}: {could}{only}", ""))
    second: Cell = ((f" {_limits(row)}", "dim"),)
    wait = f" {node.pending} pending ({counted(node.pending_gpus, node.unit)})" if node.pending else " none pending"
    third: Cell = ((wait + (f", {node.inadmissible} inadmissible" if node.inadmissible else ""), "dim"),)
    problem: tuple[Cell, ...] = (((f" ⚠ {node.problem}", "fault"),),) if node.problem else ()
    starved: tuple[Cell, ...] = ()
    if node.starved is not None:
        starved = (((f" ⚠ {starved_text(node, node.starved, now)}", "fault"),),)
    return (first, *problem, *starved, second, third)


def _subject(row: TreeRow) -> str:
    """The unit of the amounts: a resource, or accelerators other than whole GPUs."""
    units = row.resource == GPUS and row.node.unit != WHOLE_GPU.noun
    return f"{row.node.unit}s" if units else fmt.resource(row.resource)


def _could(row: TreeRow, quotas: Sequence[UsableQuota]) -> str:
    """The quota available now, by flavor, and how much of it pending workloads could use."""
    resource, use = row.resource, row.use
    flavors: Sequence[UsableQuota | QuotaUse] = [
        one for one in quotas or row.node.flavors if not row.flavor and _counts(row, one.resource)
    ]
    if len(flavors) < 2:
        could = f"available {fmt.amount(resource, use.available)}, max {fmt.amount(resource, use.potential)}"
    else:
        could = f"available {', '.join(_flavor(one, flavors) for one in flavors)}"
    if row.node.kind is not NodeKind.CLUSTER_QUEUE or not row.node.pending or not quotas:
        return could
    useful = ", ".join(f"{_name(one, quotas)} {fmt.amount(one.resource, one.usable)}" for one in quotas if one.usable)
    return f"{could} · usable by pending workloads: {useful or 'none'}"


def _shut(row: TreeRow, why: str) -> str:
    """The reason why it admits no workloads, and its max quota by flavor."""
    flavors = [one for one in row.node.flavors if not row.flavor and _counts(row, one.resource)]
    most = [f"{_name(one, flavors)} {fmt.amount(one.resource, one.potential)}" for one in flavors]
    whole = fmt.amount(row.resource, row.use.potential)
    return f"admits no workloads: {why}; max {', '.join(most) if len(most) > 1 else whole}"


def _flavor(one: UsableQuota | QuotaUse, others: Sequence[UsableQuota | QuotaUse]) -> str:
    available, most = fmt.amount(one.resource, one.available), fmt.amount(one.resource, one.potential)
    return f"{_name(one, others)} {available} (max {most})"


def _name(one: UsableQuota | QuotaUse, others: Sequence[UsableQuota | QuotaUse]) -> str:
    """The flavor, with the resource where it has quota for several of those shown."""
    alone = sum(other.flavor == one.flavor for other in others) == 1
    return one.flavor if alone else f"{one.flavor} {fmt.resource(one.resource)}".strip()


def _counts(row: TreeRow, resource: str) -> bool:
    """True for the resources that the row shows."""
    if row.resource != GPUS:
        return resource == row.resource
    # Quota of DRA devices may have any name (Kueue: deviceClassMappings).
    devices = row.node.unit == DRA_DEVICE.noun and resource not in (CPU, MEMORY, EPHEMERAL_STORAGE, PODS)
    return devices or is_counted(resource)


def _limits(row: TreeRow) -> str:
    if row.node.kind not in KUEUES:
        resource, use = row.resource, row.use
        deserves = {NodeKind.VOLCANO_QUEUE: "deserves", NodeKind.KAI_QUEUE: "quota"}.get(row.node.kind, "may have")
        most = f" · max {fmt.amount(resource, use.potential)}" if use.potential != use.nominal else ""
        return f"{deserves} {fmt.amount(resource, use.nominal)}{most} · {row.node.policy}"
    if row.node.kind is NodeKind.LOCAL_QUEUE:
        return "no quota of its own: uses that of its ClusterQueue"
    uses = [row.use] if row.flavor else [use for use in row.node.flavors if _counts(row, use.resource)]
    parts = [
        f"borrowing limit {_by_flavor(uses, [use.borrowing_limit for use in uses])}",
        f"lending limit {_by_flavor(uses, [use.lending_limit for use in uses])}",
    ]
    return " · ".join([*parts, row.node.policy] if row.node.policy else parts)


def _by_flavor(uses: Sequence[QuotaUse], limits: Sequence[int | None]) -> str:
    """The limits of several flavors one by one: a limit holds for its flavor alone."""
    limit_texts = [fmt.limit(use.resource, limit) for use, limit in zip(uses, limits, strict=True)]
    if len(uses) < 2 or all(limit is None for limit in limits):
        return limit_texts[0] if limit_texts else fmt.limit("", None)
    return ", ".join(f"{_name(use, uses)} {limit}" for use, limit in zip(uses, limit_texts, strict=True))
