"""Kueue's own unit-test tables as data: how they are read, and what came of a case.

A table is a JSON file `tables/AREA/TEST.json`. An area's module offers checks by `AREA/TEST`; a check takes a table and
a case, runs the engine and returns the differences it found. No differences means that the whole expectation holds.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

Document = Mapping[str, Any]


class Table(Struct, frozen=True):
    """One table of one Go test."""

    name: str
    fixtures: Document
    shared: Document
    """Local variables of the test's body that are equal in all cases."""
    document: Document
    """The whole file."""
    cases: tuple["Case", ...]


class Case(Struct, frozen=True):
    """One case: what goes in, what is expected, and what else is known of the run."""

    name: str
    input: Document
    want: Document
    derived: Document
    observed: Document
    variables: Document
    gates: Mapping[str, bool]
    variants: tuple[Mapping[str, bool], ...]
    """Gates of further runs, on top of `gates`; the expectation holds in each. Empty: there was one run."""
    document: Document
    """The whole case as it was read."""

    @property
    def countable(self) -> bool:
        """False if the input holds a Go function, which data cannot tell."""
        return '"$func"' not in json.dumps(self.input)


Check = Callable[[Table, Case], Sequence[str]]
"""Differences between what was expected and what the engine does."""


class NotModelled(Exception):
    """The case needs something that the engine does not have; it counts as failed."""


class Score(Struct, frozen=True, kw_only=True):
    """What came of one table, or of one family of scenarios."""

    name: str
    passed: int = 0
    total: int = 0
    not_expressible: int = 0
    failures: Mapping[str, tuple[str, ...]] = {}

    def line(self) -> str:
        return f"{self.name} {self.passed}/{self.total} (+{self.not_expressible} not expressible)"


def load(folder: Path, name: str) -> Table:
    """Read a table by its name, from where all engines' tables lie."""
    prefix = next(prefix for prefix in reversed(ENGINES) if name.startswith(prefix))
    path = folder / ENGINES[prefix] / f"{name.removeprefix(prefix)}.json"
    document = json.loads(path.read_text())
    return Table(
        name=name,
        fixtures=document.get("fixtures") or {},
        shared=document.get("harnessVarsAllCases") or {},
        document=document,
        cases=tuple(map(_case, document["cases"])),
    )


def _case(document: Document) -> Case:
    return Case(
        name=document["name"],
        input=document.get("input") or {},
        want=document.get("want") or {},
        derived=document.get("derived") or {},
        observed=document.get("observed") or {},
        variables=document.get("harnessVars") or {},
        gates=document.get("featureGates") or {},
        variants=tuple(document.get("gateVariants") or ()),
        document=document,
    )


ENGINES = {"": "tables", "volcano/": "volcano", "kai/": "kai"}
"""How the names of an engine's tables begin → the folder that they lie in."""


def names(folder: Path) -> list[str]:
    """The names of all tables of all engines that lie below a folder."""
    return [
        f"{prefix}{path.parent.name}/{path.stem}"
        for prefix, place in ENGINES.items()
        for path in sorted((folder / place).glob("*/*.json"))
    ]


def unchecked(table: Table, case: Case) -> Sequence[str]:
    """The check of a table that nobody compares: all of its cases have failed."""
    return (f"{table.name} is not compared",)


def score(table: Table, check: Check) -> Score:
    """Run every case that can be expressed; whatever goes wrong in one is its failure."""
    failures: dict[str, tuple[str, ...]] = {}
    countable = [case for case in table.cases if case.countable]
    for case in countable:
        differences = _differences(table, case, check)
        if differences:
            failures[case.name] = differences
    return Score(
        name=table.name,
        passed=len(countable) - len(failures),
        total=len(countable),
        not_expressible=len(table.cases) - len(countable),
        failures=failures,
    )


def _differences(table: Table, case: Case, check: Check) -> tuple[str, ...]:
    try:
        return tuple(check(table, case))
    except NotModelled as problem:
        return (f"not modelled: {problem}",)
    except Exception as problem:
        return (f"{type(problem).__name__}: {problem}",)


def compare(what: str, got: object, want: object) -> Iterator[str]:
    """One difference, or none; of two structs only the fields that differ are named."""
    if got == want:
        return
    if isinstance(got, Struct) and type(got) is type(want):
        pairs = {name: (getattr(got, name), getattr(want, name)) for name in got.__struct_fields__}
        for name, (mine, theirs) in pairs.items():
            yield from compare(f"{what}.{name}", mine, theirs)
        return
    yield f"{what}:\n    got  {got}\n    want {want}"
