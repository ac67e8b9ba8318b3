"""A sample of what the real Kueue decided: every cycle of it must be decided alike."""

from collections.abc import Sequence
from typing import Any

import pytest

from gpuconsole.sim.conformance_run import run
from tests.conformance.scenarios import by_value, lines
from tests.support.shared_material import CONFORMANCE, needs_conformance

FAMILIES = ("seeds", "flat", "fungible", "hierarchy", "partial", "fair", "fairtree", "topology", "mixed")
TIMED = ("afs", "change", "checks", "podsready", "slow")
SAMPLE = 6


def sample(rows: Sequence[Any]) -> Sequence[Any]:
    return rows[:: max(1, len(rows) // SAMPLE)]


@needs_conformance
@pytest.mark.parametrize(
    ("part", "family"),
    [*(("scenarios", family) for family in FAMILIES), *(("scenarios-timed", family) for family in TIMED)],
)
def test_decisions_of_kueue(part: str, family: str) -> None:
    assert CONFORMANCE is not None
    folder = CONFORMANCE / part
    expected = {row["name"]: row for row in lines(folder / f"{family}.expected.jsonl.gz")}
    for scenario in sample(list(lines(folder / f"{family}.in.jsonl.gz"))):
        want = expected[scenario["name"]]
        got = run(scenario)["cycles"]
        if want.get("prefix"):
            got = got[: len(want["cycles"])]
        assert [by_value(c) for c in got] == [by_value(c) for c in want["cycles"]], scenario["name"]
