"""Attribution of borrowed quota to the queues and cohorts that lend it."""

from collections.abc import Callable, Mapping, Sequence


def split(amount: int, spare: Mapping[int, int]) -> dict[int, int]:
    """Split `amount` among nodes in proportion to what each can lend, and at most that.

    Largest remainder, ties by number (the order of names): the parts sum up to min(amount, total lendable).
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
    """Compute the lent amount of each ClusterQueue, and the used amount of each Cohort's own quota, of one (flavor,
    resource) in one tree.

    `members` of a cohort are its children, of a ClusterQueue None. `net` of a node = its subtree quota − max(its
    usage, its local quota): positive is what it can lend (at most its lending limit), negative is what it borrows
    from outside. `pool` is the quota of the Cohort object itself, which no queue owns. All of these are Kueue's
    own numbers (§6); only the attribution is ours:

    Quota is borrowed from the nearest lender: the children of the lowest cohort above the borrower, then the next one.
    Within a cohort its own pool is used first; the rest is split among the children that can lend, in proportion to
    what they can lend, and likewise within a child cohort. In a flat cohort the lent amounts sum up to the borrowed
    ones. If usage exceeds the quota of the whole tree (quota was lowered while in use), the excess is borrowed but has
    no lender.
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
