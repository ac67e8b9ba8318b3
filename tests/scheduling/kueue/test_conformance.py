"""A sample of what the real Kueue decided: every cycle of it must be decided alike."""

import gzip
import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from gpuconsole.model.quantity import parse_quantity
from gpuconsole.sim.bare import run
from tests.shared import CONFORMANCE, needs_conformance

FAMILIES = ("seeds", "flat", "fungible", "hierarchy", "partial", "fair", "fairtree", "topology", "mixed")
SAMPLE = 6


def lines(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt") as file:
        return [json.loads(line) for line in file if line.strip()]


def by_value(cycle: Mapping[str, Any]) -> dict[str, Any]:
    """A cycle with quantities as numbers: Kueue writes them in the format in which they were asked for."""
    admitted = [
        {**decision, "podSets": [{**p, "usage": _numbers(p.get("usage") or {})} for p in decision["podSets"]]}
        for decision in cycle.get("admitted") or ()
    ]
    return {**cycle, "admitted": admitted}


def _numbers(usage: Mapping[str, str]) -> dict[str, Fraction]:
    return {name: parse_quantity(quantity) for name, quantity in usage.items()}


def sample(rows: Sequence[Any]) -> Sequence[Any]:
    return rows[:: max(1, len(rows) // SAMPLE)]


@needs_conformance
@pytest.mark.parametrize("family", FAMILIES)
def test_decisions_of_kueue(family: str) -> None:
    assert CONFORMANCE is not None
    folder = CONFORMANCE / "scenarios"
    expected = {row["name"]: row for row in lines(folder / f"{family}.expected.jsonl.gz")}
    for scenario in sample(lines(folder / f"{family}.in.jsonl.gz")):
        want = expected[scenario["name"]]
        got = run(scenario)["cycles"]
        if want.get("prefix"):
            got = got[: len(want["cycles"])]
        assert [by_value(c) for c in got] == [by_value(c) for c in want["cycles"]], scenario["name"]
