"""Rows and columns of the queue tree, for the queues screen and the dashboard.

While a cluster is still loading, problems of queues that only seem to be missing are hidden. Objects that RBAC hides
are handled by the answers themselves (`Snapshot.seen`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gpuconsole.insight.health.alerts import Alert, AlertKind
from gpuconsole.insight.index.quota_tree import NodeKind, QuotaNode, QuotaUse, sum_up
from gpuconsole.model.clock import Time
from gpuconsole.model.devices import WHOLE_GPU
from gpuconsole.model.queues import StopPolicy
from gpuconsole.services.status import ConsoleStatus
from gpuconsole.ui import format as fmt
from gpuconsole.ui.paint import Cell, Painted
from gpuconsole.ui.table_model import Column
from gpuconsole.ui.widgets.painter import bar, pool

FOLDED, CHILDREN, FLAVORS = 0, 1, 2
GPUS = "gpu"
"""Name under which the resource selection offers the sum of all whole GPUs, whatever their resources are called."""
USED, BAR = 14, 22
"""Widths of columns."""
ENDLESS = 2**63 - 1
DEEPEST = 8
"""Maximum indentation level, so that names stay readable."""


@dataclass(frozen=True)
class TreeRow:
    """A row of the tree: a queue, or one flavor of it."""

    path: str
    """Kinds and names from the root on, which identify the row where queues have equal names."""
    node: QuotaNode
    depth: int
    opened: bool | None
    """Whether its children or flavors are shown; None if it has none."""
    resource: str
    use: QuotaUse
    """Quota usage of the displayed resource."""
    flavor: bool = False
    now: Time = 0


def tree_rows(roots: Sequence[QuotaNode], levels: Mapping[str, int], resource: str, now: Time = 0) -> list[TreeRow]:
    """Flatten the tree to rows. `levels` maps a path to its fold level; other nodes show their children."""
    rows: list[TreeRow] = []
    # A chain of thousands of cohorts is legal input: a stack instead of recursion.
    waiting = [(root, "", 0) for root in reversed(roots)]
    while waiting:
        node, above, depth = waiting.pop()
        path = f"{above}>{node.kind}:{node.name}"
        level = levels.get(path, CHILDREN if node.children else FOLDED)
        below = bool(node.children) or bool(node.flavors)
        opened = level > FOLDED if below else None
        rows.append(TreeRow(path, node, depth, opened, resource, use_of(node, resource), now=now))
        if level >= FLAVORS:
            rows += [
                TreeRow(f"{path}>{use.flavor}>{use.resource}", node, depth + 1, None, use.resource, use, flavor=True)
                for use in node.flavors
            ]
        if level >= CHILDREN:
            waiting += [(child, path, depth + 1) for child in reversed(node.children)]
    return rows


def use_of(node: QuotaNode, resource: str) -> QuotaUse:
    """Quota usage of a resource, summed over all flavors."""
    if resource == GPUS:
        return node.gpus
    return sum_up((use for use in node.flavors if use.resource == resource), resource)


def resources(roots: Sequence[QuotaNode]) -> list[str]:
    """Return the resources that the table can show: the GPU sum, then those with quota or usage in any node."""
    found: dict[str, None] = {GPUS: None}
    waiting = list(roots)
    while waiting:
        node = waiting.pop()
        found.update(dict.fromkeys(use.resource for use in node.flavors))
        waiting += node.children
    return [GPUS, *sorted(name for name in found if name != GPUS)]


def deeper(row: TreeRow, levels: Mapping[str, int]) -> int:
    """Return the fold level of a row after the user unfolds it one more step.

    The steps are FOLDED, CHILDREN, FLAVORS, without those that have nothing to show. `levels` is as in `tree_rows`.
    """
    level = levels.get(row.path, CHILDREN if row.node.children else FOLDED)
    if level == FOLDED and row.node.children:
        return CHILDREN
    return FLAVORS if row.node.flavors else level


def name_cell(row: TreeRow) -> Painted:
    """The name, indented by depth, with fold mark and problem marks."""
    indent = "  " * min(row.depth, DEEPEST)
    if row.flavor:
        return (
            (f"{indent}  ", ""),
            (row.use.flavor or "(no flavor)", "dim"),
            (f" {fmt.resource(row.use.resource)}", "dim"),
        )
    mark = "  " if row.opened is None else "▾ " if row.opened else "▸ "
    pieces = [(f"{indent}{mark}", "dim"), (row.node.name, _name_role(row.node))]
    if row.node.stop is not StopPolicy.NONE:
        pieces.append((" ⏸ drain" if row.node.stop is StopPolicy.HOLD_AND_DRAIN else " ⏸ hold", "held"))
    if row.node.starved is not None:
        pieces.append((f" ⚠ starved {fmt.since(row.now, row.node.starved.since)}".rstrip(), "fault"))
    if row.node.problem:
        pieces.append((" ⚠", "fault"))
    if not row.node.declared:
        pieces.append((" (implicit)", "dim"))
    return tuple(pieces)


def _name_role(node: QuotaNode) -> str:
    if node.kind is NodeKind.LOCAL_QUEUE:
        return ""
    return "title" if node.kind is NodeKind.COHORT else "strong"


def used_cell(row: TreeRow) -> Cell:
    """`12 / 8`: used and nominal; a LocalQueue owns nothing, so it has one number."""
    used = fmt.amount(row.resource, row.use.used)
    if row.node.kind is NodeKind.LOCAL_QUEUE:
        return ((used, "" if row.use.used else "dim"),)
    of = f" / {fmt.amount(row.resource, row.use.nominal)}"
    of += _unit(row, USED - len(used) - len(of))
    return ((used, "borrowed" if row.use.borrowed else ""), (of, "dim"))


def _unit(row: TreeRow, room: int) -> str:
    """The unit in so few characters, where the row counts accelerators that are no whole GPUs: ` devices`, ` dev`."""
    if row.resource != GPUS or row.node.unit == WHOLE_GPU.noun or not row.use.nominal:
        return ""
    noun = row.node.unit.rpartition(" ")[2]
    word = " MIG" if row.node.unit.startswith("MIG ") else f" {noun}s"
    return word if len(word) <= room else f" {noun[:3]}"


def bar_cell(row: TreeRow) -> Cell:
    if row.node.kind is NodeKind.LOCAL_QUEUE:
        return ""
    return pool(row.use, BAR) if row.node.kind is NodeKind.COHORT else bar(row.use, BAR)


def _count(value: int, role: str) -> Painted:
    return ((f"{value:,}" if value else fmt.NOTHING, role if value else "dim"),)


def _amount(resource: str, value: int, role: str) -> Painted:
    return ((fmt.amount(resource, value) if value else fmt.NOTHING, role if value else "dim"),)


def weighted_share_cell(row: TreeRow) -> Cell:
    if row.flavor or row.node.kind not in (NodeKind.COHORT, NodeKind.CLUSTER_QUEUE):
        return ""
    return ((fmt.permille(float("inf") if row.node.weighted_share >= ENDLESS else row.node.weighted_share), "dim"),)


def _of_queue(cell: Callable[[TreeRow], Cell]) -> Callable[[TreeRow], Cell]:
    """The cell of a queue's row; empty on the rows of its flavors."""
    return lambda row: "" if row.flavor else cell(row)


def _counts(title: str, name: str, count: Callable[[QuotaNode], int]) -> Column[TreeRow]:
    """A column of numbers of workloads; `name` is also their role."""
    return Column(
        title,
        _of_queue(lambda row: _count(count(row.node), name)),
        width=5,
        align="right",
        name=name,
        number=lambda row: None if row.flavor else count(row.node),
    )


COLUMNS: tuple[Column[TreeRow], ...] = (
    Column("COHORT / QUEUE", name_cell, id="name", width=22, flex=3),
    Column("USED / NOMINAL", used_cell, width=USED, align="right"),
    Column("", bar_cell, width=BAR),
    Column("▲BORROW", lambda row: _amount(row.resource, row.use.borrowed, "borrowed"), width=7, align="right", rank=2),
    Column("▼LENT", lambda row: _amount(row.resource, row.use.lent, "lent"), width=6, align="right", rank=2),
    Column(
        "SHARE",
        _of_queue(lambda row: f"{row.node.share_percent:.0f}%"),
        width=6,
        align="right",
        rank=3,
        number=lambda row: None if row.flavor else row.node.share_percent,
        unit="percent",
    ),
    Column("DRS ‰", weighted_share_cell, id="drs", width=5, align="right", rank=4),
    _counts("◐PEND", "pending", lambda node: node.pending),
    _counts("●RUN", "running", lambda node: node.running),
    Column("POLICY", _of_queue(lambda row: ((row.node.policy, "dim"),)), id="policy", width=14, flex=2, rank=5),
)


def hide_incomplete_queues(roots: Sequence[QuotaNode], status: ConsoleStatus) -> Sequence[QuotaNode]:
    """Return the queue trees; while the cluster loads, without LocalQueues whose ClusterQueue is not loaded yet."""
    return [root for root in roots if not _alone(root)] if status.loading else roots


def kueue_alerts(status: ConsoleStatus) -> list[Alert]:
    """Problems of Kueue itself, for the list of problems."""
    return [Alert(trouble=AlertKind.KUEUE, text=one.text, key=one.mark.split(" for ")[0]) for one in status.kueue]


def hide_incomplete_alerts(
    troubles: Sequence[Alert], roots: Sequence[QuotaNode], status: ConsoleStatus
) -> Sequence[Alert]:
    """Return the problems without those of LocalQueues whose ClusterQueue is not loaded yet."""
    if not status.loading:
        return troubles
    alone = {root.name for root in roots if _alone(root)}
    return [one for one in troubles if one.trouble is not AlertKind.QUEUE_INACTIVE or one.key not in alone]


def _alone(root: QuotaNode) -> bool:
    return root.kind is NodeKind.LOCAL_QUEUE
