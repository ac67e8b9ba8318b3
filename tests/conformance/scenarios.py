"""The scenario families: decisions of the real Kueue, cycle by cycle, against those of the bare mode."""

import gzip
import json
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from gpuconsole.model.resources import parse_quantity
from gpuconsole.sim.conformance_run import run
from tests.conformance.tables import Score

Document = Mapping[str, Any]
SCENARIOS = ("scenarios", "scenarios-timed")
"""Folders of families: cycle by cycle, and second by second with the controllers."""


def families(folder: Path) -> list[str]:
    """Names of the families that lie in a folder."""
    return sorted(path.name.removesuffix(".in.jsonl.gz") for path in folder.glob("*.in.jsonl.gz"))


def score_family(folder: Path, family: str) -> Score:
    """Replay every scenario of a family; one that differs in any cycle has failed."""
    wanted = {row["name"]: row for row in lines(folder / f"{family}.expected.jsonl.gz")}
    failures: dict[str, tuple[str, ...]] = {}
    total = 0
    for scenario in lines(folder / f"{family}.in.jsonl.gz"):
        total += 1
        difference = _difference(run(scenario)["cycles"], wanted[scenario["name"]])
        if difference:
            failures[scenario["name"]] = (difference,)
    return Score(name=f"{folder.name}/{family}", passed=total - len(failures), total=total, failures=failures)


def lines(path: Path) -> Iterator[dict[str, Any]]:
    """The documents of a file, one a line."""
    with gzip.open(path, "rt") as file:
        yield from (json.loads(line) for line in file if line.strip())


def _difference(got: list[Document], want: Document) -> str:
    """The first cycle that differs, or nothing. Of a scenario that was cut only the kept cycles count."""
    cycles = want["cycles"]
    if want.get("prefix"):
        got = got[: len(cycles)]
    for number, (mine, theirs) in enumerate(zip(got, cycles, strict=False)):
        if by_value(mine) != by_value(theirs):
            return f"cycle {number}"
    return "" if len(got) == len(cycles) else f"{len(got)} cycles, want {len(cycles)}"


def by_value(cycle: Document) -> dict[str, Any]:
    """A cycle with quantities as numbers: Kueue writes them in the format in which they were asked for."""
    admitted = [
        {**decision, "podSets": [{**p, "usage": _numbers(p.get("usage") or {})} for p in decision["podSets"]]}
        for decision in cycle.get("admitted") or ()
    ]
    return {**cycle, "admitted": admitted}


def _numbers(usage: Mapping[str, str]) -> dict[str, Fraction]:
    return {name: parse_quantity(quantity) for name, quantity in usage.items()}
