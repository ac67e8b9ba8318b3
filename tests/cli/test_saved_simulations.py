"""Answers about what is: of a Snapshot that others left they tell what is in it, not what our engine makes of it."""

from pathlib import Path

import pytest

from gpuconsole.model.cluster import Namespace
from gpuconsole.model.objects import Object
from gpuconsole.model.queues import LocalQueue, Quota
from gpuconsole.model.snapshot import encode
from tests.support.command_line import Line
from tests.support.snapshots import A100, cluster_queue, node, running, waiting, world

LENT: tuple[Object, ...] = (
    A100,
    node("n"),
    *(Namespace(name=name) for name in ("lender", "borrower")),
    cluster_queue("lender", "org", Quota(8)),
    cluster_queue("borrower", "org", Quota(0)),
    *(LocalQueue(namespace=name, name="lq", cluster_queue=name) for name in ("lender", "borrower")),
    running("guest", "borrower/lq", 8, "borrower"),
    waiting("owner", "lender/lq", 8),
)
"""One works on borrowed GPUs, and the lender's own work has just come: the next cycle evicts the guest."""
FREE = (*LENT[:-2], waiting("owner", "lender/lq", 8))
"""Nothing runs yet, but will by the next cycle."""


def saved(folder: Path, objects: tuple[Object, ...]) -> Path:
    file = folder / "saved.json"
    file.write_bytes(encode(world(objects)))
    return file


CASES: dict[str, tuple[tuple[str, ...], tuple[Object, ...], str]] = {
    "the ledger": (("ledger",), LENT, "8 GPUs borrowed in 1 loan"),
    "shares": (("shares",), LENT, "  borrower      1       1000 ‰  8 nvidia.com/gpu borrowed of 8 lendable = 1000 ‰"),
    "slots": (("slots",), FREE, "a100         1     8     8            8  2 × 4         8  4  2  1   0   0"),
    "risk of what waits": (("risk", "--runs", "2"), FREE, "no running workloads"),
    "anti-patterns": (
        ("antipatterns",),
        LENT,
        "no GPU telemetry: idle and underutilized allocations are unknown",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_it_tells_what_is(gpuconsole: Line, tmp_path: Path, name: str) -> None:
    command, objects, said = CASES[name]
    assert said in gpuconsole(*command, "--snapshot", saved(tmp_path, objects)).lines


def test_the_eviction_of_the_very_next_cycle_is_the_risk_of_a_workload(gpuconsole: Line, tmp_path: Path) -> None:
    lines = gpuconsole("risk", "--runs", "2", "--snapshot", saved(tmp_path, LENT)).lines
    guest = "borrower/guest borrower 8 8 0 100% 0s reclaim in cohort 100% lender (rank 1) 0.0 0.00"
    assert lines[3].split() == guest.split()
