"""The ledger in words."""

from collections.abc import Iterable, Sequence

from gpuconsole.insight.ledger import Exposure, Ledger
from gpuconsole.insight.loans import Loan
from gpuconsole.insight.starving import Starving
from gpuconsole.insight.tables import counted, table
from gpuconsole.model.clock import Time, format_span
from gpuconsole.model.quantity import GPU
from gpuconsole.ui.names import called

LOANS = ("LENDER", "BORROWER", "FLAVOR", "GPUS", "SINCE", "WORKLOADS ON IT")
EXPOSURES = ("IF IT RETURNS", "FLAVOR", "WANTS", "EVICTED", "GPUS", "LOST GPU-H", "COST $", "WHO")
NO_KUEUE = "there is no Kueue here, so no quota is lent; shares tell what the queues of Volcano or KAI have and deserve"
NAMED = 3
"""Workloads that are named for people; -o json names all."""


def ledger_lines(answer: Ledger, now: Time) -> list[str]:
    """The ledger for people."""
    if not answer.loans and not answer.starving:
        return ["nobody borrows GPUs"]
    total = sum(loan.gpus for loan in answer.loans)
    lines = [f"{counted(total, 'GPU')} borrowed, {counted(len(answer.loans), 'loan')}", ""]
    lines += table(LOANS, [_loan(loan, now) for loan in answer.loans])
    if answer.exposures:
        lines += ["", *table(EXPOSURES, [_exposure(one) for one in answer.exposures])]
    if answer.starving:
        lines += ["", *map(_starving, answer.starving)]
    return lines


def _loan(loan: Loan, now: Time) -> Sequence[object]:
    since = f"{format_span(now - loan.since)} ago" if loan.workloads else "–"
    return loan.lender, loan.borrower, _of(loan), loan.gpus, since, _names(loan.workloads)


def _exposure(one: Exposure) -> Sequence[object]:
    if not one.possible:
        return one.lender, _of(one), one.gpus, "–", "–", "–", "–", one.why_not
    lost = sum(leaving.lost_gpu_hours for leaving in one.leaving)
    cost = sum(leaving.cost for leaving in one.leaving)
    who = _names([leaving.workload for leaving in one.leaving]) or "nobody: so many are free"
    gpus = sum(leaving.gpus for leaving in one.leaving)
    return one.lender, _of(one), one.gpus, str(len(one.leaving)), str(gpus), f"{lost:.1f}", f"{cost:.2f}", who


def _names(keys: Sequence[str]) -> str:
    more = f" and {len(keys) - NAMED} more" if len(keys) > NAMED else ""
    return ", ".join(map(called, keys[:NAMED])) + more


def _starving(one: Starving) -> str:
    owns = f"{one.unused} GPUs of {_of(one)} that it owns and does not use"
    wants = f"{called(one.workload)} wants {one.gpus} of the {owns}"
    return f"{one.queue} starves: {wants}, while {_borrowers(one.borrowers)}; {one.text}"


def _borrowers(borrowers: Iterable[tuple[str, int]]) -> str:
    return " and ".join(f"{name} borrows {gpus}" for name, gpus in borrowers)


def _of(one: Loan | Exposure | Starving) -> str:
    """The flavor, with the resource where that is not the usual one."""
    return one.flavor if one.resource == GPU else f"{one.flavor} {one.resource}"
