"""`gpuconsole ledger`: who lends GPUs to whom, for people and for programs."""

import json

from gpuconsole.insight.sharing.ledger import LoanLedger, Starving
from gpuconsole.model.resources import GPU
from gpuconsole.ui.answers.cluster_reports import ledger_lines
from tests.support.command_line import Line


def test_the_ledger_for_people(gpuconsole: Line) -> None:
    """Names have lines of their own: a terminal of 80 columns would cut a last column of them."""
    assert gpuconsole("ledger", "org-cohort", "--until", "30m").lines == [
        "4 GPUs borrowed in 1 loan",
        "",
        "LENDER   BORROWER     FLAVOR  GPUS    SINCE",
        "cq-prod  cq-research  a100       4  10m ago",
        "  workloads: research/rlhf",
        "",
        "IF RECLAIMED BY  FLAVOR  RECLAIMS  EVICTED  GPUS  LOST GPU-H  COST $",
        "cq-prod          a100           8  1        6     1.0         2.21",
        "  evicts research/rlhf",
    ]


def test_the_ledger_for_programs(gpuconsole: Line) -> None:
    document = json.loads(gpuconsole("ledger", "org-cohort", "--until", "30m", "-o", "json").out)
    (loan,) = document["answer"]["loans"]
    assert (document["kind"], document["version"]) == ("Ledger", 3)
    assert loan.pop("workloads")[0].startswith("research/job-rlhf-")
    assert loan == {
        "lender": "cq-prod",
        "borrower": "cq-research",
        "flavor": "a100",
        "resource": "nvidia.com/gpu",
        "gpus": 4,
        "unit": "GPU",
        "since": "2026-01-05T08:20:00Z",
    }
    assert document["answer"]["starving"] == []


def test_nobody_borrows(gpuconsole: Line) -> None:
    assert gpuconsole("ledger", "org-cohort").lines == ["no GPUs are borrowed"]


def test_without_kueue_there_is_no_quota_to_lend(gpuconsole: Line) -> None:
    result = gpuconsole("ledger", "reclaim-volcano")
    assert (result.status, result.err) == (
        2,
        "gpuconsole: Kueue is not installed in this cluster, so no quota is lent; "
        "see shares for the queues of Volcano or KAI\n",
    )


def test_who_would_go_for_one_that_starves_is_called_by_the_name_of_its_job() -> None:
    starves = Starving(
        queue="b",
        workload="b/job-mine-0a1b2",
        gpus=3,
        flavor="a100",
        resource=GPU,
        unused=4,
        borrowers=(("a", 4),),
        text="it can reclaim them by preempting a/job-theirs-3c4d5",
    )
    assert ledger_lines(LoanLedger(starving=(starves,)), 0)[-1] == (
        "b is starved: b/mine requests 3 GPUs of a100; b has 4 unused within its nominal quota, while a borrows 4; "
        "it can reclaim them by preempting a/theirs"
    )


def test_where_nothing_queues_no_other_queues_are_promised(gpuconsole: Line) -> None:
    result = gpuconsole("ledger", "three-nodes")
    said = "gpuconsole: Kueue is not installed in this cluster, so no quota is lent\n"
    assert (result.status, result.err) == (2, said)
