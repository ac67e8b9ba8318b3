"""What loading gives: objects, findings, and counts of what was left out."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from gpuconsole.model.documents.findings import Finding, Severity
from gpuconsole.model.documents.reader import Reader
from gpuconsole.model.objects import TABLES, Object


class Loaded(Struct, frozen=True, kw_only=True):
    """What a set of files holds, and what is to be said about it."""

    objects: tuple[Object, ...] = ()
    """In the order in which a cluster would create them; of one object that is given twice, the last."""
    findings: tuple[Finding, ...] = ()
    """By file and line."""
    unknown: Mapping[str, int] = {}
    """`Kind (group)` → how many documents of that kind nobody knows."""
    known_unsimulated: Mapping[str, int] = {}
    """Kinds that are known, but that the simulator does not play yet."""
    scenario: tuple[dict[str, Any], ...] = ()
    """Scenario documents as they stand."""
    origins: tuple[str, ...] = ()
    """The source of each scenario, as it was named: its `files` are looked for beside it."""

    @property
    def has_errors(self) -> bool:
        return any(finding.severity == Severity.ERROR for finding in self.findings)


class Entry(Struct, frozen=True, kw_only=True):
    """An object and the place that it was read from. `keep` is False for what only a scenario creates."""

    thing: Object
    place: Reader
    keep: bool = True

    @property
    def table(self) -> str:
        return TABLES[type(self.thing)]


def last_of_each(entries: Sequence[Entry]) -> list[Entry]:
    """Of an object that is given twice the last one counts, as with kubectl apply."""
    last: dict[tuple[str, str], Entry] = {}
    for entry in entries:
        key = entry.table, entry.thing.key
        if key in last:
            first = last[key].place
            where = f"{first.report.file} line {first.report.line_of(first.path)}"
            entry.place.report.warning(
                entry.place.at("metadata", "name"),
                f"it is given twice, first in {where}: the last one counts",
                "remove one of them, or rename it",
                "given-twice",
            )
        last[key] = entry
    return list(last.values())
