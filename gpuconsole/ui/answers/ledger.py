"""The ledger in words."""

from collections.abc import Iterable, Iterator, Sequence

from gpuconsole.insight.ledger import Exposure, Ledger
from gpuconsole.insight.loans import Loan
from gpuconsole.insight.losses import summed
from gpuconsole.insight.starving import Starving
from gpuconsole.insight.tables import counted, table
from gpuconsole.model.clock import Time, format_span
from gpuconsole.model.quantity import GPU
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.ui.names import called, named

LOANS = ("LENDER", "BORROWER", "FLAVOR", "GPUS", "SINCE")
EXPOSURES = ("IF IT RETURNS", "FLAVOR", "WANTS", "EVICTED", "GPUS", "LOST GPU-H", "COST $")
NAMED = 3
"""Workloads that are named for people; -o json names all."""


def without_kueue(snapshot: Snapshot) -> str:
    """That nothing is lent where Kueue is not, and what answers instead."""
    queues = len(snapshot.volcano_queues) or len(snapshot.kai_queues)
    instead = "; shares tell what the queues of Volcano or KAI have and deserve" if queues else ""
    return f"there is no Kueue here, so no quota is lent{instead}"


def ledger_lines(answer: Ledger, now: Time) -> list[str]:
    """The ledger for people."""
    unseen = _unseen(answer.unseen)
    if not answer.loans and not answer.starving:
        return unseen or ["nobody borrows GPUs"]
    total = sum(loan.gpus for loan in answer.loans)
    lines = [f"{counted(total, 'GPU')} borrowed, {counted(len(answer.loans), 'loan')}", ""]
    lines += _noted(table(LOANS, [_loan(loan, now) for loan in answer.loans]), map(_users, answer.loans))
    if answer.exposures:
        rows = table(EXPOSURES, [_exposure(one) for one in answer.exposures])
        lines += ["", *_noted(rows, map(_leaving, answer.exposures))]
    if answer.starving:
        lines += ["", *map(_starving, answer.starving)]
    return [*lines, *(["", *unseen] if unseen else [])]


def _unseen(queues: Sequence[str]) -> list[str]:
    """Of whom nobody can say here what they lend and borrow."""
    if not queues:
        return []
    more = f" and {len(queues) - NAMED} more" if len(queues) > NAMED else ""
    names = f"ClusterQueue{'s' if len(queues) > 1 else ''} {', '.join(queues[:NAMED])}{more}"
    gone = "are not there: what they lend and borrow" if len(queues) > 1 else "is not there: what it lends and borrows"
    return [f"{names} {gone} is not known"]


def _noted(rows: Sequence[str], notes: Iterable[str]) -> Iterator[str]:
    """A table with a line below each row: names that stood in a column of their own would be cut by a terminal."""
    yield rows[0]
    for row, note in zip(rows[1:], notes, strict=True):
        yield row
        if note:
            yield f"  {note}"


def _loan(loan: Loan, now: Time) -> Sequence[object]:
    since = f"{format_span(now - loan.since)} ago" if loan.workloads else "–"
    return loan.lender, loan.borrower, _of(loan), loan.gpus, since


def _users(loan: Loan) -> str:
    return f"workloads on it: {_names(loan.workloads)}" if loan.workloads else ""


def _exposure(one: Exposure) -> Sequence[object]:
    if not one.possible:
        return one.lender, _of(one), one.gpus, "–", "–", "–", "–"
    lost = summed([leaving.lost_gpu_hours for leaving in one.leaving], ".1f")
    cost = summed([leaving.cost for leaving in one.leaving], ".2f")
    gpus = sum(leaving.gpus for leaving in one.leaving)
    return one.lender, _of(one), one.gpus, str(len(one.leaving)), str(gpus), lost, cost


def _leaving(one: Exposure) -> str:
    if not one.possible:
        return one.why_not
    names = _names([leaving.workload for leaving in one.leaving])
    return f"evicts {names}" if names else "evicts nobody: so many are free"


def _names(keys: Sequence[str]) -> str:
    more = f" and {len(keys) - NAMED} more" if len(keys) > NAMED else ""
    return ", ".join(map(called, keys[:NAMED])) + more


def _starving(one: Starving) -> str:
    owns = f"{one.unused} GPUs of {_of(one)} that it owns and does not use"
    wants = f"{called(one.workload)} wants {one.gpus} of the {owns}"
    return f"{one.queue} starves: {wants}, while {_borrowers(one.borrowers)}; {named(one.text)}"


def _borrowers(borrowers: Iterable[tuple[str, int]]) -> str:
    return " and ".join(f"{name} borrows {gpus}" for name, gpus in borrowers)


def _of(one: Loan | Exposure | Starving) -> str:
    """The flavor, with the resource where that is not the usual one."""
    return one.flavor if one.resource == GPU else f"{one.flavor} {one.resource}"
