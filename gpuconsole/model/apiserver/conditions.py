"""Validation of conditions in a status (k8s.io/apimachinery ValidateConditions)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuconsole.model.apiserver import forms
from gpuconsole.model.apiserver.refusals import duplicate, invalid, not_supported, required, too_long
from gpuconsole.model.documents.fields import FieldError
from gpuconsole.model.documents.findings import Path
from gpuconsole.model.documents.syntax import label_key

LONGEST_REASON = 1024
LONGEST_MESSAGE = 32 * 1024
_STATUSES = ("False", "True", "Unknown")


def check_conditions(conditions: Sequence[Mapping[str, Any]], path: Path) -> Iterator[FieldError]:
    """Validate that types are unique, and that each condition has a status, a reason and a transition time."""
    seen: set[str] = set()
    for n, condition in enumerate(conditions):
        kind = condition.get("type", "")
        if kind in seen:
            yield duplicate((*path, n, "type"), kind)
        seen.add(kind)
        yield from _check_condition(condition, (*path, n))


def _check_condition(condition: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    for message in label_key(condition.get("type", "")):
        yield invalid((*path, "type"), condition.get("type", ""), message, "write it in CamelCase")
    if condition.get("status", "") not in _STATUSES:
        yield not_supported((*path, "status"), condition.get("status", ""), _STATUSES)
    if condition.get("observedGeneration", 0) < 0:
        where = (*path, "observedGeneration")
        yield invalid(where, condition["observedGeneration"], "must be greater than or equal to zero", "drop it")
    if not condition.get("lastTransitionTime"):
        yield required((*path, "lastTransitionTime"), "must be set", "write it as 2026-01-05T08:00:00Z")
    reason = condition.get("reason", "")
    if not reason:
        yield required((*path, "reason"), "must be set", "name a reason in CamelCase")
    elif not forms.REASON.fullmatch(reason):
        detail = (
            "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric "
            "characters or '_,:', and must end with an alphanumeric character or '_'"
        )
        yield invalid((*path, "reason"), reason, detail, "write it in CamelCase")
    for key, most in (("reason", LONGEST_REASON), ("message", LONGEST_MESSAGE)):
        if len(condition.get(key, "")) > most:
            yield too_long((*path, key), most)
