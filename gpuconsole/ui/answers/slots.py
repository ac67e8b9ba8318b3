"""What idle GPUs are good for, in words."""

from collections.abc import Iterable, Sequence

from gpuconsole.insight.fragmentation import SIZES, Fragments, Slots, Usefulness
from gpuconsole.insight.slots import Starts
from gpuconsole.insight.tables import counted, table


def slots_lines(answer: Usefulness, starts: Sequence[Starts]) -> list[str]:
    """What fits on nodes, what would start for each queue, and what is a fragment."""
    if not answer.cluster.nodes:
        quotas = [f"{_called(one)}: quota gives {one.available} GPUs" for one in starts]
        if answer.divided:
            return ["no node has a whole GPU", *_divided(answer), *quotas, "", *_fragments(answer.fragments)]
        return ["no node is seen here, and without one nothing starts", *quotas]
    head = ("GPUS", "IDLE", "LARGEST POD", "LARGEST GANG", *map(str, SIZES))
    lines = table(("FLAVOR", "NODES", *head), [_row(row) for row in (*answer.flavors, answer.cluster)])
    lines += _divided(answer)
    if answer.domains:
        domains = [(row.level, *_row(row)) for row in answer.domains]
        lines += ["", *table(("LEVEL", "DOMAIN", "NODES", *head), domains)]
    if starts:
        near = {one.flavor or "any": one for one in starts if one.by_topology is not None}
        if near:
            together = [(name, one.level, *(one.by_topology or {}).values()) for name, one in near.items()]
            lines += ["", *table(("FLAVOR", "IN ONE", *map(str, SIZES)), together)]
        head = ("QUEUE", "FLAVOR", "QUOTA", "IDLE", *map(str, SIZES))
        lines += ["", *table(head, [_starts(one) for one in starts])]
        told = [f"{_called(one)}: {one.text}" for one in starts if one.available or one.idle or not one.flavor]
        lines += ["", *told] if told else []
    return [*lines, "", *_fragments(answer.fragments)]


def starts_unknown(undecided: Iterable[str]) -> tuple[str, ...]:
    """What the answer leaves open where nobody can say what is decided next."""
    return tuple(f"what starts in each queue: {text}" for text in undecided)


def _divided(answer: Usefulness) -> list[str]:
    """That some nodes are left out, as what they offer are no whole GPUs."""
    offer = "offer MIG instances and no whole GPU" if answer.divided > 1 else "offers MIG instances and no whole GPU"
    return [f"besides, {counted(answer.divided, 'node')} {offer}"] if answer.divided else []


def _row(row: Slots) -> tuple[object, ...]:
    gang = f"{row.largest_gang.pods} × {row.largest_gang.gpus}" if row.largest_gang is not None else "–"
    return (row.name, row.nodes, row.gpus, row.idle, row.largest_pod, gang, *row.slots.values())


def _starts(one: Starts) -> tuple[object, ...]:
    """How many would start, and of how many that the quota gives."""
    cells = [_cell(now, one.by_quota[size]) for size, now in one.now.items()]
    return one.queue, one.flavor or "any", one.available, one.idle, *cells


def _called(one: Starts) -> str:
    return f"{one.queue}, {one.flavor}" if one.flavor else one.queue


def _cell(now: int, quota: int) -> str:
    return str(now) if now == quota else f"{now} of {quota}"


def _fragments(fragments: Fragments) -> Iterable[str]:
    if not fragments.typical:
        yield "no pods, so nothing is typical: fragmentation is not known"
        return
    yield from table(
        ("TYPICAL POD", "CPU", "MODEL", "PERCENT", "NODES THAT TAKE IT"),
        [
            (
                pod.part or (counted(pod.gpus, "GPU") if pod.gpus else "no GPU"),
                pod.cpu / 1000,
                pod.model or "any",
                pod.percent,
                pod.nodes,
            )
            for pod in fragments.typical
        ],
    )
    yield ""
    if not fragments.known:
        yield "all of them ask for parts of GPUs: how many idle whole ones are fragments is not known"
        return
    yield f"{fragments.fragment:.1f} of {fragments.idle} idle GPUs are fragments ({fragments.percent:.0f} %)"
