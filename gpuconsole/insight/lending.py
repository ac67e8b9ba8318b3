"""Who lends how much: borrowed quota, attributed to those whose unused quota it is."""

from collections.abc import Callable, Iterable, Mapping, Sequence


def split(amount: int, spare: Mapping[str, int]) -> dict[str, int]:
    """Split `amount` among names in proportion to what each can spare; nobody gets more than that.

    Largest remainder, ties by name, so that the parts always sum up to min(amount, all that can be spared).
    """
    total = sum(spare.values())
    amount = min(amount, total)
    if amount <= 0:
        return dict.fromkeys(spare, 0)
    parts = {name: amount * own // total for name, own in spare.items()}
    rest = amount - sum(parts.values())
    by_remainder = sorted(spare, key=lambda name: (-(amount * spare[name] % total), name))
    for name in by_remainder[:rest]:
        parts[name] += 1
    return parts


def lent(
    roots: Iterable[str],
    children: Mapping[str, Sequence[str]],
    net: Callable[[str], int],
    pool: Callable[[str], int],
) -> dict[str, int]:
    """Attribute one (flavor, resource): leaf → what others use of its quota, cohort → what is used of its own pool.

    `children` has an entry for every cohort and none for a ClusterQueue. `net` of a node = its subtree quota − max(its
    usage, its local quota): positive is what it can spare for others (never more than its lending limit), negative is
    what it borrows from outside. `pool` is the quota of the Cohort object itself, which belongs to nobody. All of these
    are Kueue's own numbers (§6); only the attribution is ours:

    Borrowing is met as near as possible: by the children of the lowest cohort above the borrower, then by the next one.
    Inside a cohort its own pool is used up first; the rest is split among the children that can spare something, in
    proportion to what they can spare, and inside a child cohort again so. In a flat cohort the lent amounts sum up to
    the borrowed ones. Where more is used than the whole tree has (quota was cut under running workloads), the excess is
    borrowed but lent by nobody.
    """
    result: dict[str, int] = {}
    waiting = [(root, 0) for root in roots]
    while waiting:
        node, outside = waiting.pop()
        members = children.get(node)
        if members is None:
            result[node] = outside
            continue
        nets = {member: net(member) for member in members}
        wanted = outside + sum(-amount for amount in nets.values() if amount < 0)
        result[node] = min(wanted, pool(node))
        parts = split(wanted - result[node], {member: max(0, amount) for member, amount in nets.items()})
        waiting.extend(parts.items())
    return result
