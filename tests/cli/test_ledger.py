"""`gpuconsole ledger`: who lends GPUs to whom, for people and for programs."""

import json

from tests.cli.line import Line


def test_the_ledger_for_people(gpuconsole: Line) -> None:
    """Names have lines of their own: a terminal of 80 columns would cut a last column of them."""
    assert gpuconsole("ledger", "org-cohort", "--until", "30m").lines == [
        "4 GPUs borrowed, 1 loan",
        "",
        "LENDER   BORROWER     FLAVOR  GPUS  SINCE",
        "cq-prod  cq-research  a100       4  10m ago",
        "  workloads on it: research/rlhf",
        "",
        "IF IT RETURNS  FLAVOR  WANTS  EVICTED  GPUS  LOST GPU-H  COST $",
        "cq-prod        a100        8  1        6     1.0         2.21",
        "  evicts research/rlhf",
    ]


def test_the_ledger_for_programs(gpuconsole: Line) -> None:
    document = json.loads(gpuconsole("ledger", "org-cohort", "--until", "30m", "-o", "json").out)
    (loan,) = document["answer"]["loans"]
    assert (document["kind"], document["version"]) == ("Ledger", 1)
    assert loan.pop("workloads")[0].startswith("research/job-rlhf-")
    assert loan == {
        "lender": "cq-prod",
        "borrower": "cq-research",
        "flavor": "a100",
        "resource": "nvidia.com/gpu",
        "gpus": 4,
        "since": "2026-01-05T08:20:00Z",
    }
    assert document["answer"]["starving"] == []


def test_nobody_borrows(gpuconsole: Line) -> None:
    assert gpuconsole("ledger", "org-cohort").lines == ["nobody borrows GPUs"]


def test_without_kueue_there_is_no_quota_to_lend(gpuconsole: Line) -> None:
    result = gpuconsole("ledger", "three-nodes")
    assert (result.status, result.err) == (
        2,
        "gpuconsole: there is no Kueue here, so no quota is lent; "
        "shares tell what the queues of Volcano or KAI have and deserve\n",
    )
