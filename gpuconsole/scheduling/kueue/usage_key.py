"""Cache key for a ClusterQueue's heads while its tree is unchanged: the usage and the available quota."""

from gpuconsole.model.clock import Time
from gpuconsole.scheduling.kueue.context import Context


class UsageKey:
    """Cache key and bounds of one ClusterQueue for the current usage."""

    __slots__ = ("max_available", "number")

    def __init__(self, rows: int) -> None:
        self.number = rows
        """Number that stands for the usage on the path from the queue to its root."""
        self.max_available: dict[tuple[int, Time, int], int] = {}
        """(priority, age, column) → most that is available after preemption; filled on demand."""


def usage_key_for(context: Context, node: int) -> UsageKey:
    """Return the usage key of the queue at this node."""
    known = context.cohort_cache(node)
    found: UsageKey | None = known.get(node)
    if found is None:
        usage = context.snapshot.usage
        width, used = usage.tree.width, usage.usage
        path = (node, *usage.tree.paths[node])
        found = known[node] = UsageKey(
            context.usage_number(tuple(tuple(used[at * width : (at + 1) * width]) for at in path))
        )
    return found
