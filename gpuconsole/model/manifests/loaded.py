"""Result of loading manifests: objects, findings, and counts of skipped documents."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from gpuconsole.model.documents.findings import Finding, Path, Severity
from gpuconsole.model.documents.reader import Reader
from gpuconsole.model.objects import TABLES, Object


class LoadedObject(Struct, frozen=True, kw_only=True):
    """Object with the document from which it was read."""

    obj: Object
    place: Reader
    keep: bool = True
    """False for objects that only a scenario creates."""
    scope: str = ""
    """Source of the scenario to which it belongs, or empty; scenarios are independent of each other."""
    later: bool = False
    """A step creates it, so an earlier object of its name may be deleted by then."""

    @property
    def table(self) -> str:
        return TABLES[type(self.obj)]


class LoadedManifests(Struct, frozen=True, kw_only=True):
    """Objects in a set of files, and findings about them."""

    objects: tuple[Object, ...] = ()
    """In the order in which a cluster would create them; the last one of objects that are given twice."""
    findings: tuple[Finding, ...] = ()
    """Sorted by file and line."""
    unknown: Mapping[str, int] = {}
    """`Kind (group)` → number of documents of that unknown kind."""
    known_unsimulated: Mapping[str, int] = {}
    """The same for known kinds that are not simulated."""
    scenario: tuple[dict[str, Any], ...] = ()
    """Scenario documents, unchanged."""
    origins: tuple[str, ...] = ()
    """Source of each scenario, as it was named; the paths in its `files` are relative to it."""
    lines: tuple[Callable[[Path], int], ...] = ()
    """For each scenario, a function that returns the line of a path in it."""
    included: tuple[str, ...] = ()
    """Files that scenarios name."""
    entries: tuple[LoadedObject, ...] = ()
    """Objects with their documents, including those that scenarios and their steps create."""
    configurations: tuple[Reader, ...] = ()
    """Documents of Kueue's Configurations."""
    ignored: tuple[str, ...] = ()
    """Files of folders that are not manifests."""
    stored: tuple[Mapping[str, Any], ...] = ()
    """If requested, Kueue's objects as its API server would store them, without those that it would refuse."""

    @property
    def has_errors(self) -> bool:
        return any(finding.severity == Severity.ERROR for finding in self.findings)


def last_of_each(entries: Sequence[LoadedObject]) -> list[LoadedObject]:
    """Return the last one of objects that are given twice, as with kubectl apply, and report those."""
    last: dict[tuple[str, str, str], LoadedObject] = {}
    for entry in entries:
        key = entry.scope, entry.table, entry.obj.key
        if key in last and not entry.later:
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
