"""A few lines on one queue: what is wrong with it, what it could take, its limits and its policy."""

from gpuconsole.insight.quota_node import NodeKind
from gpuconsole.insight.tables import counted
from gpuconsole.ui import format as fmt
from gpuconsole.ui.paint import Cell
from gpuconsole.ui.screens.queue_rows import TreeRow

KINDS = {
    NodeKind.COHORT: "cohort",
    NodeKind.CLUSTER_QUEUE: "ClusterQueue",
    NodeKind.LOCAL_QUEUE: "LocalQueue",
    NodeKind.VOLCANO_QUEUE: "Volcano queue",
    NodeKind.KAI_QUEUE: "KAI queue",
    NodeKind.NAMESPACE: "namespace",
}
KUEUES = (NodeKind.COHORT, NodeKind.CLUSTER_QUEUE, NodeKind.LOCAL_QUEUE)
"""What Kueue rules; the others can only be looked at."""


def about(row: TreeRow) -> tuple[Cell, ...]:
    """A few lines on the queue under the cursor: what is wrong, its limits, its policy."""
    node, use, resource = row.node, row.use, row.resource
    kind = KINDS[node.kind]
    could = f"could take {fmt.amount(resource, use.available)} now, {fmt.amount(resource, use.potential)} at most"
    reserved = use.used - use.admitted
    only = f" · {fmt.amount(resource, reserved)} only reserved" if reserved else ""
    first: Cell = ((f" {kind} ", "dim"), (node.name, "strong"), (f"  {fmt.resource(resource)}: {could}{only}", ""))
    second: Cell = ((f" {_limits(row)}", "dim"),)
    wait = f" {node.pending} wait for {counted(node.pending_gpus, node.unit)}" if node.pending else " nobody waits"
    third: Cell = ((wait + (f", {node.parked} of them parked" if node.parked else ""), "dim"),)
    problem: tuple[Cell, ...] = (((f" ⚠ {node.problem}", "fault"),),) if node.problem else ()
    return (first, *problem, second, third)


def _limits(row: TreeRow) -> str:
    if row.node.kind not in KUEUES:
        resource, use = row.resource, row.use
        deserves = {NodeKind.VOLCANO_QUEUE: "deserves", NodeKind.KAI_QUEUE: "quota"}.get(row.node.kind, "may have")
        most = f" · at most {fmt.amount(resource, use.potential)}" if use.potential != use.nominal else ""
        return f"{deserves} {fmt.amount(resource, use.nominal)}{most} · {row.node.policy}"
    if row.node.kind is NodeKind.LOCAL_QUEUE:
        return "a door to its ClusterQueue; it owns no quota"
    use, resource = row.use, row.resource
    parts = [
        f"borrowing limit {fmt.limit(resource, use.borrowing_limit)}",
        f"lending limit {fmt.limit(resource, use.lending_limit)}",
    ]
    return " · ".join([*parts, row.node.policy] if row.node.policy else parts)
