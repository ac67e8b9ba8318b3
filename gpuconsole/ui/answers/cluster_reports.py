"""Text of the reports about the whole cluster: plan, preemption risk, anti-patterns, ledger, fair shares, capacity.

The ledger has borrowed quota, reclaim victims and starved queues; the fair-share report shares with their calculation,
and the admission order; schedulable capacity the gangs that fit on idle GPUs, and fragmentation.

First come the parts of which reports are made: lines of text, and tables whose rows name the object that they describe.
The command line prints the parts one below the other; the console shows the tables with a cursor.
"""

from collections.abc import Iterable, Iterator, Sequence
from math import ceil
from typing import NamedTuple, TypeAlias

from msgspec import Struct

from gpuconsole.insight.data_gaps import IdleBound
from gpuconsole.insight.health.antipatterns import AntiPattern, total_per_day
from gpuconsole.insight.health.telemetry import Utilization
from gpuconsole.insight.index.engine_queues import RULES, QueueShare
from gpuconsole.insight.index.fragmentation import SIZES, FlavorSlots, Fragments, TypicalPod, Usefulness
from gpuconsole.insight.preemption.history import summed
from gpuconsole.insight.preemption.risk import Risk, WorkloadRisk
from gpuconsole.insight.sharing.fair_shares import CycleHead, Loan, NodeShare, ShareReport
from gpuconsole.insight.sharing.fair_shares import ResourceShare as Borrowed
from gpuconsole.insight.sharing.ledger import LoanLedger, ReclaimScenario, Starving
from gpuconsole.insight.sharing.slots import StartableGangs
from gpuconsole.insight.tables import Cell, Table, Valued, counted, table_of, text_lines, text_table
from gpuconsole.insight.whatif.plan import CapacityPlan, PlanOption
from gpuconsole.insight.whatif.whatif import FEASIBLE
from gpuconsole.model.clock import SECOND, Time, format_span, format_time
from gpuconsole.model.devices import ANY_DEVICE, WHOLE_GPU, device_cell, short_amount
from gpuconsole.model.resources import GPU, format_quantity
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.ui import format as fmt
from gpuconsole.ui.names import called, named


class About(NamedTuple):
    """The object that a row describes: a table as in `objects.TABLES`, and a key in it."""

    table: str
    key: str


class Row(Struct, frozen=True, kw_only=True):
    """A row of a table. `about` is the object that it describes, on which actions work; None for no object."""

    key: str
    """Identifies the row for the cursor."""
    cells: tuple[Cell, ...]
    about: About | None = None
    note: str = ""
    """Text shown below the row, for details that do not fit in a column."""


class AnswerTable(Struct, frozen=True):
    """A table of a report."""

    head: tuple[str, ...]
    rows: tuple[Row, ...]

    @property
    def table(self) -> Table:
        """The cells of its rows."""
        return table_of(self.head, [row.cells for row in self.rows])


Part: TypeAlias = "str | AnswerTable"


def lines_of(parts: Iterable[Part]) -> list[str]:
    """Return a report as lines of text, its parts one below the other."""
    return [line for part in parts for line in ([part] if isinstance(part, str) else _lines(part))]


def _lines(part: AnswerTable) -> Iterator[str]:
    head, *rows = text_lines(part.table)
    yield head
    for row, text in zip(part.rows, rows, strict=True):
        yield text
        if row.note:
            yield f"  {row.note}"


def apart(parts: Sequence[Part]) -> tuple[list[str], list[AnswerTable], list[str]]:
    """Split a report into the lines before its first table, the tables, and the lines after it."""
    tables = [part for part in parts if isinstance(part, AnswerTable)]
    first = next((place for place, part in enumerate(parts) if isinstance(part, AnswerTable)), len(parts))
    lines = [part for part in parts[first:] if isinstance(part, str)]
    return _trimmed(part for part in parts[:first] if isinstance(part, str)), tables, _trimmed(lines)


def _trimmed(lines: Iterable[str]) -> list[str]:
    """Without empty lines at both ends, and without more than one between others."""
    found: list[str] = []
    for text in lines:
        if text or (found and found[-1]):
            found.append(text)
    return found[:-1] if found and not found[-1] else found


NOTHING = "not enough data for an answer"


def no_data_lines(lacking: Iterable[str]) -> list[str]:
    """Return the report that replaces one whose required objects are not visible; `lacking` names them."""
    return [NOTHING, *missing_data_lines(lacking)]


def missing_data_lines(unknown: Iterable[str]) -> list[str]:
    """Return a line `unknown: …` for each text, to be shown below a report."""
    return [f"unknown: {text}" for text in unknown]


MOST_OBSTACLES = 4
NOT_FOR_LONG = "no option avoids later eviction; the cheapest that starts them"


def plan_lines(answer: CapacityPlan) -> list[str]:
    """The plan as text."""
    return lines_of(plan_parts(answer))


def plan_parts(answer: CapacityPlan) -> list[Part]:
    """The plan as lines and tables, the cheapest option first."""
    asked = f"{counted(len(answer.workloads), 'workload')} to start within {format_span(answer.wanted)} (p95 wait)"
    if answer.without.holds:
        return [f"{asked}: no change is needed, p95 wait {_wait(answer.without, answer)}; {FEASIBLE}"]
    rows = tuple(_option_row(option, answer) for option in options_of(answer))
    # The option comes last: it is long, and on a narrow screen the numbers matter more.
    head = ("MEETS TARGET", "STARTED", "P95 WAIT", "$/H", "EVICTED", "LOST $", "OPTION")
    if answer.best is None:
        last = ["no option meets the target", *_obstacles(answer)]
    else:
        said = "cheapest option that meets the target" if answer.best.holds else NOT_FOR_LONG
        last = [f"{said}: {_what(answer.best)}; {FEASIBLE}"]
    return [asked, "", AnswerTable(head, rows), "", *last]


def options_of(answer: CapacityPlan) -> tuple[PlanOption, ...]:
    """Return all evaluated options of a plan in display order: those that meet the target, then the others."""
    return (*answer.options, *answer.failed, *(() if answer.without.soon else (answer.without,)))


def _obstacles(answer: CapacityPlan) -> Iterator[str]:
    """Why the workloads stay pending, and the remedies for it."""
    for one in answer.obstacles[:MOST_OBSTACLES]:
        yield f"  {called(one.workload)}: {named(one.why)}" if one.workload else f"  {one.why}"
        yield from (f"    fix: {remedy}" for remedy in one.remedies)
    more = len(answer.obstacles) - MOST_OBSTACLES
    if more > 0:
        yield f"  and {more} more"


def key_of(option: PlanOption) -> str:
    """Row key of an option."""
    return f"{option.kind}: {option.words}"


def _option_row(option: PlanOption, answer: CapacityPlan) -> Row:
    wait = _wait(option, answer)
    cells = (
        "yes" if option.holds else "evicted later" if option.soon else "no",
        f"{option.admitted}/{len(answer.workloads)}",
        wait if option.p95_wait is None else Valued(wait, option.p95_wait),
        Valued(f"{option.hourly:.2f}", option.hourly),
        option.victims,
        Valued(f"{option.lost:.2f}", option.lost),
        _what(option),
    )
    return Row(key=key_of(option), cells=cells)


def _what(option: PlanOption) -> str:
    """The changes of the option, and the number of workloads that start and are evicted again."""
    return f"{option.words}; {option.evicted_again} evicted again" if option.evicted_again else option.words


def _wait(option: PlanOption, answer: CapacityPlan) -> str:
    if option.p95_wait is None:
        return "–"
    if option.p95_wait > answer.horizon:
        return f"over {format_span(answer.horizon)}"
    return format_span(option.p95_wait)


COLUMNS = (
    "WORKLOAD",
    "QUEUE",
    "GPUS",
    "BORROWED",
    "PRIORITY",
    "RISK",
    "MEDIAN",
    "CAUSE",
    "RECLAIMED BY",
    "LOST GPU-H",
    "COST $",
)


def risk_lines(answer: Risk) -> list[str]:
    """The preemption-risk report as text."""
    return lines_of(risk_parts(answer))


def risk_parts(answer: Risk) -> list[Part]:
    """The preemption-risk report as lines and tables."""
    if not answer.workloads:
        return ["no running workloads"]
    rows = tuple(_risk_row(one, answer.runs) for one in answer.workloads)
    if not answer.runs:
        return [
            f"{counted(len(rows), 'running workload')}; preemption risk unknown",
            "",
            AnswerTable(COLUMNS, rows),
        ]
    ahead = format_span(answer.horizon - answer.time)
    return [
        f"{endangered(answer)} of {counted(len(answer.workloads), 'workload')} may be evicted within {ahead}",
        "",
        AnswerTable(COLUMNS, rows),
        "",
        f"{counted(answer.runs, 'simulation run')} from {format_time(answer.time // SECOND * SECOND)}; assumptions:",
        *(f"  {text}" for text in answer.assumptions),
        *_stopped_early(answer),
    ]


def endangered(answer: Risk) -> int:
    """Return the number of running workloads that were evicted in at least one simulation run."""
    return sum(bool(one.probability) for one in answer.workloads)


def _stopped_early(answer: Risk) -> list[str]:
    """Message that the runs stopped early, with the command that completes them."""
    if answer.runs == answer.wanted_runs and answer.horizon == answer.wanted_horizon:
        return []
    limits = []
    if answer.runs < answer.wanted_runs:
        limits.append(f"{answer.runs} of {counted(answer.wanted_runs, 'run')}")
    if answer.horizon < answer.wanted_horizon:
        far, wanted = (format_span(end - answer.time) for end in (answer.horizon, answer.wanted_horizon))
        limits.append(f"{far} of the {wanted} horizon")
    return [f"Stopped early: {', '.join(limits)}. Full result: gpuconsole risk --runs {answer.wanted_runs}."]


def _risk_row(one: WorkloadRisk, runs: int) -> Row:
    median: Cell = "–" if runs else "unknown"
    if one.median is not None:
        median = Valued(format_span(one.median // SECOND * SECOND), one.median)
    causes = "; ".join(f"{c.by_queue or c.reason} {c.runs / runs:.0%}" for c in one.causes[:2])
    turns = ", ".join(f"{turn.lender} (rank {turn.place})" for turn in one.turns[:2])
    cells = (
        called(one.workload),
        one.queue,
        _held(one),
        "unknown" if one.borrowed is None else one.borrowed or "–",
        one.priority,
        "unknown" if one.probability is None else Valued(f"{one.probability:.0%}", one.probability),
        median,
        causes or ("unknown" if one.probability is None else "–"),
        turns or "–",
        "unknown" if one.lost_gpu_hours is None else Valued(f"{one.lost_gpu_hours:.1f}", one.lost_gpu_hours),
        "unknown" if one.cost is None else Valued(f"{one.cost:.2f}", one.cost),
    )
    return Row(key=one.workload, cells=cells, about=About("workloads", one.workload))


def _held(one: WorkloadRisk) -> Cell:
    """`8`, `3 MIG`, `2 dev`"""
    return one.gpus if one.unit == WHOLE_GPU.noun else Valued(short_amount(one.gpus, one.unit), one.gpus)


def antipatterns_lines(
    found: Sequence[AntiPattern], *, measured: bool = True, average: Utilization | None = None
) -> list[str]:
    """Return the anti-patterns report as text: evidence, cost per day and fix of each, then the `average` utilization.

    With `measured` false, the report first says that there is no GPU telemetry.
    """
    return [*_patterns(found, measured), *(["", *utilization_lines(average)] if average is not None else [])]


def utilization_lines(average: Utilization) -> list[str]:
    """The average utilization of the cluster and of its teams, as a table."""
    rows = [
        (
            one.team or "cluster",
            device_cell(one.gpus, one.unit),
            one.measured,
            _percent(one.utilization),
            _percent(one.sm),
        )
        for one in (average.cluster, *average.teams)
    ]
    return text_table(("TEAM", "GPUS", "MEASURED", "UTILIZATION", "SM ACTIVITY"), rows)


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f}%"


def _patterns(found: Sequence[AntiPattern], measured: bool) -> list[str]:
    lines = [] if measured else ["no GPU telemetry: idle and underutilized allocations are unknown", ""]
    if not found:
        return [*lines, "no findings"]
    once = " (an eviction in several findings is counted once)" if any(one.shared_cost_per_day for one in found) else ""
    lines.append(
        f"{counted(len(found), 'anti-pattern')}, about {fmt.money(total_per_day(found), cents=True)} per day{once}"
    )
    for one in found:
        shown = ", ".join(f"{name}: {value}" for name, value in one.evidence.items() if value != "")
        lines += ["", f"{one.code}: {named(one.text)}", f"  cost      {_cost(one)}{_gpus(one)}"]
        lines += [f"  evidence  {named(shown)}"] if shown else []
        lines.append(f"  fix       {named(one.fix)}")
    return lines


def _cost(one: AntiPattern) -> str:
    if not one.cost_per_day:
        return "none"
    shared = (
        f", of which {fmt.money(one.shared_cost_per_day, cents=True)} is counted in the preemption loop of its queues"
    )
    return f"{fmt.money(one.cost_per_day, cents=True)} per day{shared if one.shared_cost_per_day else ''}"


def _gpus(one: AntiPattern) -> str:
    return f" ({one.gpus:.1f} {one.unit}s)" if one.gpus else ""


LOANS = ("LENDER", "BORROWER", "FLAVOR", "GPUS", "SINCE")
EXPOSURES = ("IF RECLAIMED BY", "FLAVOR", "RECLAIMS", "EVICTED", "GPUS", "LOST GPU-H", "COST $")
NAMED = 3
"""Maximum number of workloads that the text names; `-o json` names all."""


def without_kueue(snapshot: Snapshot) -> str:
    """Message for a cluster without Kueue, with the report to use instead."""
    queues = len(snapshot.volcano_queues) or len(snapshot.kai_queues)
    instead = "; see shares for the queues of Volcano or KAI" if queues else ""
    return f"Kueue is not installed in this cluster, so no quota is lent{instead}"


def ledger_parts(answer: LoanLedger, now: Time) -> list[Part]:
    """The ledger as lines and tables."""
    unseen = _unseen(answer.unseen)
    if not answer.loans and not answer.starving:
        return list(unseen or ["no GPUs are borrowed"])
    parts: list[Part] = [f"{_total(answer.loans)} borrowed in {counted(len(answer.loans), 'loan')}", ""]
    parts.append(AnswerTable(LOANS, tuple(_loan(loan, now) for loan in answer.loans)))
    if answer.exposures:
        parts += ["", AnswerTable(EXPOSURES, tuple(_exposure(one) for one in answer.exposures))]
    if answer.starving:
        parts += ["", *map(_starving, answer.starving)]
    return [*parts, *(["", *unseen] if unseen else [])]


def _total(loans: Sequence[Loan]) -> str:
    """Total borrowed, by unit: `8 GPUs, 3 MIG 1g.10gb instances`."""
    totals: dict[str, int] = {}
    for loan in loans:
        totals[loan.unit] = totals.get(loan.unit, 0) + loan.gpus
    return ", ".join(counted(count, unit) for unit, count in totals.items()) or counted(0, WHOLE_GPU.noun)


def _amount(one: Loan | ReclaimScenario) -> Cell:
    return one.gpus if one.unit == WHOLE_GPU.noun else Valued(short_amount(one.gpus, one.unit), one.gpus)


def ledger_lines(answer: LoanLedger, now: Time) -> list[str]:
    """The ledger as text."""
    return lines_of(ledger_parts(answer, now))


def _unseen(queues: Sequence[str]) -> list[str]:
    """Message about referenced ClusterQueues that do not exist: their loans are unknown."""
    if not queues:
        return []
    more = f" and {len(queues) - NAMED} more" if len(queues) > NAMED else ""
    names = f"ClusterQueue{'s' if len(queues) > 1 else ''} {', '.join(queues[:NAMED])}{more}"
    gone = "do not exist: their loans" if len(queues) > 1 else "does not exist: its loans"
    return [f"{names} {gone} are unknown"]


def _loan(loan: Loan, now: Time) -> Row:
    since = Valued(f"{format_span(now - loan.since)} ago", now - loan.since) if loan.workloads else "–"
    return Row(
        key=f"{loan.lender} {loan.borrower} {_of(loan)}",
        cells=(loan.lender, loan.borrower, _of(loan), _amount(loan), since),
        about=About("cluster_queues", loan.borrower) if loan.borrower else None,
        note=f"workloads: {_names(loan.workloads)}" if loan.workloads else "",
    )


def _exposure(one: ReclaimScenario) -> Row:
    cells: tuple[Cell, ...] = ("–", "–", "–", "–")
    if one.possible:
        lost = summed([leaving.lost_gpu_hours for leaving in one.leaving], ".1f")
        cost = summed([leaving.cost for leaving in one.leaving], ".2f")
        units = {leaving.unit for leaving in one.leaving if leaving.gpus}
        unit = units.pop() if len(units) == 1 else ANY_DEVICE if units else one.unit
        gpus = short_amount(sum(leaving.gpus for leaving in one.leaving), unit)
        cells = (str(len(one.leaving)), gpus, lost, cost)
    return Row(
        key=f"{one.lender} {_of(one)}",
        cells=(one.lender, _of(one), _amount(one), *cells),
        about=About("cluster_queues", one.lender),
        note=_leaving(one),
    )


def _leaving(one: ReclaimScenario) -> str:
    if not one.possible:
        return one.why_not
    names = _names([leaving.workload for leaving in one.leaving])
    return f"evicts {names}" if names else "no evictions: enough capacity is free"


def _names(keys: Sequence[str]) -> str:
    more = f" and {len(keys) - NAMED} more" if len(keys) > NAMED else ""
    return ", ".join(map(called, keys[:NAMED])) + more


def _starving(one: Starving) -> str:
    wants = f"{called(one.workload)} requests {counted(one.gpus, one.unit)} of {_of(one)}"
    owns = f"{one.queue} has {one.unused} unused within its nominal quota"
    return f"{one.queue} is starved: {wants}; {owns}, while {_borrowers(one.borrowers)}; {named(one.text)}"


def _borrowers(borrowers: Iterable[tuple[str, int]]) -> str:
    return " and ".join(f"{name} borrows {gpus}" for name, gpus in borrowers)


def _of(one: Loan | ReclaimScenario | Starving) -> str:
    """The flavor, followed by the resource unless that is `nvidia.com/gpu`."""
    return one.flavor if one.resource == GPU else f"{one.flavor} {one.resource}"


TREE = ("COHORT / QUEUE", "WEIGHT", "SHARE", "CALCULATION")
TURNS = ("ORDER", "WORKLOAD", "OUTCOME", "QUEUE", "PRIORITY", "WAIT", "BORROWING", "SHARE IF ADMITTED")
"""Column heads of the admission order, the most important first: a narrow screen cuts the last ones."""
TABLES = {"Volcano": "volcano_queues", "KAI": "kai_queues"}
"""Engine → table of its queue objects."""
QUEUES = ("QUEUE", "GPUS", "DESERVED", "SHARE", "PENDING", "ORDER", "RULES")
QUEUES_IN_UNITS = ("QUEUE", "USED", "DESERVED", "SHARE", "PENDING", "ORDER", "UNIT", "RULES")


def shares_lines(found: ShareReport | None, queues: Sequence[QueueShare], now: Time) -> list[str]:
    """Return the fair-share report as text."""
    return lines_of(shares_parts(found, queues, now))


def shares_parts(found: ShareReport | None, queues: Sequence[QueueShare], now: Time) -> list[Part]:
    """Return the fair-share report as lines and tables, engine by engine."""
    parts = [_kueue(found, now)] if found is not None and found.tree else []
    for name, rule in RULES.items():
        own = [queue for queue in queues if queue.engine == name]
        if own:
            # The unit has a column only where some queue counts another unit than whole GPUs.
            said = any(queue.unit != WHOLE_GPU.noun for queue in own)
            rows = tuple(_queue(queue, said) for queue in own)
            parts.append(
                [f"{name}, admission order: {rule}", "", AnswerTable(QUEUES_IN_UNITS if said else QUEUES, rows)]
            )
    if not parts:
        return ["no queues with fair shares"]
    return [line for number, part in enumerate(parts) for line in ([""] if number else []) + part]


def _kueue(found: ShareReport, now: Time) -> list[Part]:
    said = "on" if found.fair_sharing else "off: shares do not affect admission"
    parts: list[Part] = [
        f"Kueue, fair sharing {said}",
        "",
        AnswerTable(TREE, tuple(_node(node) for node in found.tree)),
    ]
    parts += ["", f"each scheduling cycle takes the head of each queue ({found.within}), in this order: {found.order}"]
    if not found.turns:
        return [*parts, "no pending workloads"]
    words = [f"{called(turn.workload)}: {turn.message}" for turn in found.turns if _unsaid(turn)]
    return [
        *parts,
        "",
        AnswerTable(TURNS, tuple(_turn(turn, now) for turn in found.turns)),
        *(["", *words] if words else []),
    ]


def _node(node: NodeShare) -> Row:
    arithmetic = "; ".join(map(_part, node.parts))
    weight = "–" if node.weight is None else f"{node.weight:g}"
    if node.parts and node.weight != 1:
        arithmetic += f"; divided by weight {weight}"
    return Row(
        key=f"{node.kind} {node.name}",
        cells=("  " * node.depth + node.name, weight, _permille(node.share), arithmetic or "borrows nothing"),
        about=About("cluster_queues" if node.kind == "queue" else "cohorts", node.name),
    )


def _permille(share: str) -> Valued:
    return Valued(f"{_rounded(share)} ‰", float(share))


def _rounded(share: str) -> str:
    """A share without decimals, rounded up as in status.fairSharing.weightedShare; `+Inf` is unchanged."""
    return f"{ceil(float(share))}" if share[-1].isdigit() else share


def _part(part: Borrowed) -> str:
    borrowed, lendable = (format_quantity(part.resource, amount) for amount in (part.borrowed, part.lendable))
    return f"{borrowed} {part.resource} borrowed of {lendable} lendable = {round(part.ratio, 1):g} ‰"


def _unsaid(turn: CycleHead) -> bool:
    """Whether Kueue's message says more than the outcome; the victims of a preemption are listed elsewhere."""
    return bool(turn.message) and turn.outcome != "preempts"


def _turn(turn: CycleHead, now: Time) -> Row:
    waited = max(0, now - turn.queued) // SECOND * SECOND
    borrows: Cell = "–"
    with_it: Cell = "–"
    if turn.share_with_it is not None:
        borrows, with_it = f"level {turn.borrows}" if turn.borrows else "no", _permille(turn.share_with_it)
    waits, name = Valued(format_span(waited), waited), called(turn.workload)
    outcome = "stays pending" if turn.outcome == "waits" else turn.outcome
    return Row(
        key=turn.workload,
        cells=(turn.place, name, outcome, turn.queue, turn.priority, waits, borrows, with_it),
        about=About("workloads", turn.workload),
    )


def _queue(queue: QueueShare, unit_said: bool) -> Row:
    share = "–" if queue.share is None else Valued(f"{100 * queue.share:.0f}%", queue.share)
    turn = "–" if queue.turn is None else str(queue.turn)
    name = "  " * queue.depth + queue.name
    numbers = (name, queue.used, queue.deserved, share, queue.waiting, turn)
    return Row(
        key=f"{queue.engine} {queue.name}",
        cells=(*numbers, queue.unit, queue.words) if unit_said else (*numbers, queue.words),
        about=About(TABLES[queue.engine], queue.name),
    )


MARKS = {IdleBound.EXACT: "", IdleBound.AT_LEAST: "≥ ", IdleBound.AT_MOST: "≤ "}
"""Mark before a number that is only a bound, because some objects are not visible."""
OF = {IdleBound.AT_LEAST: "node", IdleBound.AT_MOST: "pod"}


def slots_lines(answer: Usefulness, starts: Sequence[StartableGangs], bound: IdleBound = IdleBound.EXACT) -> list[str]:
    """Return the schedulable-capacity report as text; `bound` tells whether its numbers are exact or bounds."""
    return lines_of(slots_parts(answer, starts, bound))


def slots_parts(answer: Usefulness, starts: Sequence[StartableGangs], bound: IdleBound = IdleBound.EXACT) -> list[Part]:
    """Return the schedulable-capacity report as lines and tables, preceded by the meaning of the marks of bounds."""
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
            Row(key=f"{row.level} {row.name} {row.unit}", cells=(row.level, *_slots_row(row, bound, units)))
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
    """Return, for each reason in `undecided`, a text that it is unknown which gangs start in each queue."""
    return tuple(f"gangs that start in each queue: {text}" for text in undecided)


def _slots_row(row: FlavorSlots, bound: IdleBound, units: bool) -> tuple[Cell, ...]:
    gang = fmt.gang(row.largest_gang)
    # Any number of pods may be missing from view; the nodes are complete.
    there = bound if bound is IdleBound.AT_LEAST else IdleBound.EXACT
    idle, largest, *fit = _bounded((row.idle, row.largest_pod, *row.slots.values()), bound)
    shown = gang if gang == "–" else f"{MARKS[bound]}{gang}"
    nodes, total = _bounded((row.nodes, row.gpus), there)
    unit = (row.unit,) if units else ()
    return (row.name, nodes, *unit, total, idle, largest, shown, *fit)


def _bounded(numbers: Iterable[int], bound: IdleBound) -> Iterator[Cell]:
    """Numbers with the mark of their bound; `at most 0` is exact."""
    mark = MARKS[bound]
    for number in numbers:
        exact = not mark or (bound is IdleBound.AT_MOST and not number)
        yield number if exact else Valued(f"{mark}{number}", number)


def _flavor(row: FlavorSlots, bound: IdleBound, units: bool) -> Row:
    return Row(key=f"{row.name} {row.unit}", cells=_slots_row(row, bound, units), about=About("flavors", row.name))


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
