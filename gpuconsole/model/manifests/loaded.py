"""What loading gives: objects, findings, and counts of what was left out."""

from collections.abc import Mapping
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
