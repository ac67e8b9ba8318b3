"""What a ClusterQueue's heads are judged by as long as nothing happens in its tree: what is used, what could be had."""

from gpuconsole.model.clock import Time
from gpuconsole.scheduling.kueue.context import Context


class Ground:
    """Of one ClusterQueue on the accounts as they are."""

    __slots__ = ("most", "rows")

    def __init__(self, rows: int) -> None:
        self.rows = rows
        """Stands for what is used on the way from the queue up to its root."""
        self.most: dict[tuple[int, Time, int], int] = {}
        """(priority, age, column) → what could be had at most, by quota and evictions; added to."""


def ground_of(context: Context, node: int) -> Ground:
    """What the heads of the queue at this node are judged by."""
    known = context.known_of_tree(node)
    found: Ground | None = known.get(node)
    if found is None:
        usage = context.accounts.usage
        width, used = usage.tree.width, usage.usage
        path = (node, *usage.tree.paths[node])
        found = known[node] = Ground(
            context.number_of(tuple(tuple(used[at * width : (at + 1) * width]) for at in path))
        )
    return found
