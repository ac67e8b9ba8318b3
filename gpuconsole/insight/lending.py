"""Who lends how much: borrowed quota, attributed to those whose unused quota it is."""

from collections.abc import Callable, Mapping, Sequence


def split(amount: int, spare: Mapping[int, int]) -> dict[int, int]:
    """Split `amount` among nodes in proportion to what each can spare; nobody gets more than that.

    Largest remainder, ties by number (the order of names): the parts sum up to min(amount, all that can be spared).
    """
    total = sum(spare.values())
    amount = min(amount, total)
    if amount <= 0:
        return dict.fromkeys(spare, 0)
    parts = {node: amount * own // total for node, own in spare.items()}
    rest = amount - sum(parts.values())
    by_remainder = sorted(spare, key=lambda node: (-(amount * spare[node] % total), node))
    for node in by_remainder[:rest]:
        parts[node] += 1
    return parts


def lent(
    root: int,
    members: Callable[[int], Sequence[int] | None],
    net: Callable[[int], int],
    pool: Callable[[int], int],
) -> dict[int, int]:
    """Attribute one (flavor, resource) of one tree: to a ClusterQueue what others use of its quota, to a cohort what is
    used of its own pool.

    `members` of a cohort are its children, of a ClusterQueue None. `net` of a node = its subtree quota − max(its
    usage, its local quota): positive is what it can spare for others (never more than its lending limit), negative is
    what it borrows from outside. `pool` is the quota of the Cohort object itself, which belongs to nobody. All of these
    are Kueue's own numbers (§6); only the attribution is ours:

    Borrowing is met as near as possible: by the children of the lowest cohort above the borrower, then by the next one.
    Inside a cohort its own pool is used up first; the rest is split among the children that can spare something, in
    proportion to what they can spare, and inside a child cohort again so. In a flat cohort the lent amounts sum up to
    the borrowed ones. Where more is used than the whole tree has (quota was cut under running workloads), the excess is
    borrowed but lent by nobody.
    """
    result: dict[int, int] = {}
    waiting = [(root, 0)]
    while waiting:
        node, outside = waiting.pop()
        below = members(node)
        if below is None:
            result[node] = outside
            continue
        nets = {member: net(member) for member in below}
        wanted = outside + sum(-amount for amount in nets.values() if amount < 0)
        result[node] = min(wanted, pool(node))
        parts = split(wanted - result[node], {member: max(0, amount) for member, amount in nets.items()})
        waiting.extend(parts.items())
    return result
