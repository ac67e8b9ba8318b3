"""Text of the ledger: borrowed quota, reclaim victims, starved queues."""

from collections.abc import Iterable, Sequence

from gpuconsole.insight.preemption.history import summed
from gpuconsole.insight.sharing.ledger import LoanLedger, ReclaimScenario, Starving
from gpuconsole.insight.sharing.loans import Loan
from gpuconsole.insight.tables import counted
from gpuconsole.model.clock import Time, format_span
from gpuconsole.model.device_units import ANY_DEVICE, WHOLE_GPU, short_amount
from gpuconsole.model.resources import GPU
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.ui.answers.parts import About, AnswerTable, Part, Row, Valued, lines_of
from gpuconsole.ui.names import called, named

LOANS = ("LENDER", "BORROWER", "FLAVOR", "GPUS", "SINCE")
EXPOSURES = ("IF RECLAIMED BY", "FLAVOR", "RECLAIMS", "EVICTED", "GPUS", "LOST GPU-H", "COST $")
NAMED = 3
"""Workloads named in the text; -o json names all."""


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


def _amount(one: Loan | ReclaimScenario) -> object:
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
    cells: tuple[object, ...] = ("–", "–", "–", "–")
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
