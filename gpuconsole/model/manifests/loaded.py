"""Result of loading manifests: objects, findings, and counts of skipped documents."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from gpuconsole.model.documents.findings import Finding, Path, Severity
from gpuconsole.model.documents.reader import Reader
from gpuconsole.model.objects import TABLES, Object


class LoadedObject(Struct, frozen=True, kw_only=True):
    """An object and the place that it was read from."""

    obj: Object
    place: Reader
    keep: bool = True
    """False for what only a scenario creates."""
    scope: str = ""
    """The scenario that it belongs to; scenarios know nothing of each other."""
    later: bool = False
    """A step creates it: by then an earlier one of its name may be gone."""

    @property
    def table(self) -> str:
        return TABLES[type(self.obj)]


class LoadedManifests(Struct, frozen=True, kw_only=True):
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
    lines: tuple[Callable[[Path], int], ...] = ()
    """For each scenario: which line a path in it stands in."""
    included: tuple[str, ...] = ()
    """The files that scenarios name, as they were read."""
    entries: tuple[LoadedObject, ...] = ()
    """Every object with its place, those of scenarios and of their steps included."""
    configurations: tuple[Reader, ...] = ()
    """Kueue's Configurations, each where it stands."""
    ignored: tuple[str, ...] = ()
    """Files of folders that are no manifests."""
    stored: tuple[Mapping[str, Any], ...] = ()
    """Where asked for: Kueue's objects as its API server would store them, without those that it would refuse."""

    @property
    def has_errors(self) -> bool:
        return any(finding.severity == Severity.ERROR for finding in self.findings)


def last_of_each(entries: Sequence[LoadedObject]) -> list[LoadedObject]:
    """Of an object that is given twice the last one counts, as with kubectl apply."""
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
