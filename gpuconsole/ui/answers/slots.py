"""What idle GPUs are good for, in words."""

from collections.abc import Iterable, Sequence

from gpuconsole.insight.fragmentation import SIZES, Fragments, Slots, TypicalPod, Usefulness
from gpuconsole.insight.slots import Starts
from gpuconsole.insight.tables import counted
from gpuconsole.ui.answers.parts import About, Part, Row, Table, lines_of


def slots_lines(answer: Usefulness, starts: Sequence[Starts]) -> list[str]:
    """The answer as text."""
    return lines_of(slots_parts(answer, starts))


def slots_parts(answer: Usefulness, starts: Sequence[Starts]) -> list[Part]:
    """What fits on nodes, what would start for each queue, and what is a fragment."""
    if not answer.cluster.nodes:
        quotas = [f"{_called(one)}: quota gives {one.available} GPUs" for one in starts]
        if answer.divided:
            return ["no node has a whole GPU", *_divided(answer), *quotas, "", *_fragments(answer.fragments)]
        return ["no node is seen here, and without one nothing starts", *quotas]
    head = ("GPUS", "IDLE", "LARGEST POD", "LARGEST GANG", *map(str, SIZES))
    flavors = tuple(_flavor(row) for row in (*answer.flavors, answer.cluster))
    parts: list[Part] = [Table(("FLAVOR", "NODES", *head), flavors), *_divided(answer)]
    if answer.domains:
        domains = tuple(Row(key=f"{row.level} {row.name}", cells=(row.level, *_row(row))) for row in answer.domains)
        parts += ["", Table(("LEVEL", "DOMAIN", "NODES", *head), domains)]
    if starts:
        near = {one.flavor or "any": one for one in starts if one.by_topology is not None}
        if near:
            together = tuple(
                Row(key=name, cells=(name, one.level, *(one.by_topology or {}).values())) for name, one in near.items()
            )
            parts += ["", Table(("FLAVOR", "IN ONE", *map(str, SIZES)), together)]
        head = ("QUEUE", "FLAVOR", "QUOTA", "IDLE", *map(str, SIZES))
        parts += ["", Table(head, tuple(_starts(one) for one in starts))]
        told = [f"{_called(one)}: {one.text}" for one in starts if one.available or one.idle or not one.flavor]
        parts += ["", *told] if told else []
    return [*parts, "", *_fragments(answer.fragments)]


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


def _flavor(row: Slots) -> Row:
    return Row(key=row.name, cells=_row(row), about=About("flavors", row.name))


def _starts(one: Starts) -> Row:
    """How many would start, and of how many that the quota gives."""
    cells = [_cell(now, one.by_quota[size]) for size, now in one.now.items()]
    return Row(
        key=_called(one),
        cells=(one.queue, one.flavor or "any", one.available, one.idle, *cells),
        about=About("cluster_queues", one.queue),
    )


def _called(one: Starts) -> str:
    return f"{one.queue}, {one.flavor}" if one.flavor else one.queue


def _cell(now: int, quota: int) -> str:
    return str(now) if now == quota else f"{now} of {quota}"


def _fragments(fragments: Fragments) -> Iterable[Part]:
    if not fragments.typical:
        yield "no pods, so nothing is typical: fragmentation is not known"
        return
    yield Table(
        ("TYPICAL POD", "CPU", "MODEL", "PERCENT", "NODES THAT TAKE IT"),
        tuple(_typical(pod) for pod in fragments.typical),
    )
    yield ""
    if not fragments.known:
        yield "all of them ask for parts of GPUs: how many idle whole ones are fragments is not known"
        return
    yield f"{fragments.fragment:.1f} of {fragments.idle} idle GPUs are fragments ({fragments.percent:.0f} %)"


def _typical(pod: TypicalPod) -> Row:
    what = pod.part or (counted(pod.gpus, "GPU") if pod.gpus else "no GPU")
    model = pod.model or "any"
    return Row(key=f"{what} {pod.cpu} {model}", cells=(what, pod.cpu / 1000, model, pod.percent, pod.nodes))
