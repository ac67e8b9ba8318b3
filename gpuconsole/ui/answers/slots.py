"""Text of the schedulable-capacity report: gangs that fit on idle GPUs, and fragmentation."""

from collections.abc import Iterable, Iterator, Sequence

from gpuconsole.insight.data_gaps import IdleBound
from gpuconsole.insight.index.fragmentation import FlavorSlots, Fragments, TypicalPod, Usefulness
from gpuconsole.insight.index.largest_gang import SIZES
from gpuconsole.insight.sharing.slots import StartableGangs
from gpuconsole.insight.tables import counted
from gpuconsole.model.device_units import WHOLE_GPU
from gpuconsole.ui import format as fmt
from gpuconsole.ui.answers.parts import About, AnswerTable, Part, Row, Valued, lines_of

MARKS = {IdleBound.EXACT: "", IdleBound.AT_LEAST: "≥ ", IdleBound.AT_MOST: "≤ "}
"""Mark before a number that is only a bound, because some objects are not visible."""
OF = {IdleBound.AT_LEAST: "node", IdleBound.AT_MOST: "pod"}


def slots_lines(answer: Usefulness, starts: Sequence[StartableGangs], bound: IdleBound = IdleBound.EXACT) -> list[str]:
    """The report as text."""
    return lines_of(slots_parts(answer, starts, bound))


def slots_parts(answer: Usefulness, starts: Sequence[StartableGangs], bound: IdleBound = IdleBound.EXACT) -> list[Part]:
    """The report as lines and tables, preceded by the meaning of the marks if its numbers are bounds."""
    if bound is IdleBound.EXACT:
        some = answer.cluster.nodes
        return [*_parts(answer, starts, bound), *(["", *_fragments(answer.fragments)] if some else [])]
    said = f"{MARKS[bound]}means {bound}: some {OF[bound]}s are not visible"
    return [said, "", *_parts(answer, starts, bound)]


def _parts(answer: Usefulness, starts: Sequence[StartableGangs], bound: IdleBound) -> list[Part]:
    """Pods and gangs that fit on nodes, and gangs that would start in each queue."""
    if not answer.cluster.nodes:
        quotas = [f"{_called(one)}: available quota {counted(one.available, one.unit)}" for one in starts]
        nothing = ", so nothing can start" if bound is IdleBound.EXACT else ""
        return [f"no nodes are visible{nothing}", *quotas]
    units = len({row.unit for row in (answer.cluster, *answer.others)}) > 1 or answer.cluster.unit != WHOLE_GPU.noun
    head = (
        *(("UNIT",) if units else ()),
        "TOTAL" if units else "GPUS",
        "IDLE",
        "LARGEST POD",
        "LARGEST GANG",
        *map(str, SIZES),
    )
    flavors = tuple(_flavor(row, bound, units) for row in (*answer.flavors, answer.cluster, *answer.others))
    parts: list[Part] = [AnswerTable(("FLAVOR", "NODES", *head), flavors)]
    if answer.domains:
        domains = tuple(
            Row(key=f"{row.level} {row.name} {row.unit}", cells=(row.level, *_row(row, bound, units)))
            for row in answer.domains
        )
        parts += ["", AnswerTable(("LEVEL", "DOMAIN", "NODES", *head), domains)]
    if starts:
        near = {_flavor_name(one): one for one in starts if one.by_topology is not None}
        if near:
            together = tuple(
                Row(key=name, cells=(name, one.level, *_bounded((one.by_topology or {}).values(), bound)))
                for name, one in near.items()
            )
            parts += ["", AnswerTable(("FLAVOR", "WITHIN ONE", *map(str, SIZES)), together)]
        head = ("QUEUE", "FLAVOR", "QUOTA", "IDLE", *map(str, SIZES))
        parts += ["", AnswerTable(head, tuple(_starts(one, bound) for one in starts))]
        spoken = (one for one in starts if one.text and (one.available or one.idle or not one.flavor))
        called = [f"{_called(one)}: {one.text}" for one in spoken]
        parts += ["", *called] if called else []
    return parts


def starts_unknown(undecided: Iterable[str]) -> tuple[str, ...]:
    """Parts of the report that are unknown because the next decision cannot be computed."""
    return tuple(f"gangs that start in each queue: {text}" for text in undecided)


def _row(row: FlavorSlots, bound: IdleBound, units: bool) -> tuple[object, ...]:
    gang = fmt.gang(row.largest_gang)
    # Any number of pods may be missing from view; the nodes are complete.
    there = bound if bound is IdleBound.AT_LEAST else IdleBound.EXACT
    idle, largest, *fit = _bounded((row.idle, row.largest_pod, *row.slots.values()), bound)
    shown = gang if gang == "–" else f"{MARKS[bound]}{gang}"
    nodes, total = _bounded((row.nodes, row.gpus), there)
    unit = (row.unit,) if units else ()
    return (row.name, nodes, *unit, total, idle, largest, shown, *fit)


def _bounded(numbers: Iterable[int], bound: IdleBound) -> Iterator[object]:
    """Numbers with the mark of their bound; `at most 0` is exact."""
    mark = MARKS[bound]
    for number in numbers:
        exact = not mark or (bound is IdleBound.AT_MOST and not number)
        yield number if exact else Valued(f"{mark}{number}", number)


def _flavor(row: FlavorSlots, bound: IdleBound, units: bool) -> Row:
    return Row(key=f"{row.name} {row.unit}", cells=_row(row, bound, units), about=About("flavors", row.name))


def _starts(one: StartableGangs, bound: IdleBound) -> Row:
    """Gangs that would start now, and the number that quota allows."""
    cells = [_cell(now, one.by_quota[size], bound) for size, now in one.now.items()]
    (idle,) = _bounded((one.idle,), bound)
    return Row(
        key=_called(one),
        cells=(one.queue, _flavor_name(one), one.available, idle, *cells),
        about=About("cluster_queues", one.queue),
    )


def _called(one: StartableGangs) -> str:
    return f"{one.queue}, {_flavor_name(one)}" if one.flavor else one.queue


def _flavor_name(one: StartableGangs) -> str:
    """The flavor, with its unit unless that is the whole GPU."""
    unit = "" if one.unit == WHOLE_GPU.noun else f" ({one.unit})"
    return f"{one.flavor or 'any'}{unit}"


def _cell(now: int, quota: int, bound: IdleBound) -> str:
    # A number equal to the quota limit is exact, and so is `at most 0`.
    known = now == quota if bound is IdleBound.AT_LEAST else not now
    mark = "" if known else MARKS[bound]
    return f"{mark}{now}" if now == quota else f"{mark}{now} of {quota}"


def _fragments(fragments: Fragments) -> Iterable[Part]:
    if not fragments.typical:
        yield "fragmentation unknown: no pods to measure it with"
        return
    yield AnswerTable(
        ("TYPICAL POD", "CPU", "MODEL", "PERCENT", "FITTING NODES"),
        tuple(_typical(pod) for pod in fragments.typical),
    )
    yield ""
    if not fragments.known:
        yield "all typical pods request parts of GPUs: fragmentation of whole GPUs unknown"
        return
    yield f"{fragments.fragment:.1f} of {fragments.idle} idle GPUs are fragmented ({fragments.percent:.0f}%)"


def _typical(pod: TypicalPod) -> Row:
    what = pod.part or (counted(pod.gpus, "GPU") if pod.gpus else "no GPU")
    model = pod.model or "any"
    return Row(key=f"{what} {pod.cpu} {model}", cells=(what, pod.cpu / 1000, model, pod.percent, pod.nodes))
