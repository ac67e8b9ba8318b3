"""Syntax of a scenario's `expect`, key by key: the checks that need no run."""

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from math import isfinite
from typing import Any

from gpuconsole.insight.pending_reasons import PendingReason
from gpuconsole.model.resources import amount
from gpuconsole.model.text import clean

INCLUDES = "Includes"
POOL = ("nodes", "starting", "leaving", "spot", "launched", "gone", "interrupted", "hourly", "spent")
"""Fields of a pool."""
_ENTRY = ("workload", "by", "reason")


class ExpectError(ValueError):
    """An expectation cannot be checked; the text has the reason."""


class _FormError(ExpectError):
    """A value has the wrong type for its key."""


def as_list(wanted: Any) -> Sequence[Any]:
    """Return a list value; raises _FormError for another type."""
    if not isinstance(wanted, list | tuple):
        raise _FormError(f"{clean(repr(wanted), 60)} is not a list")
    return wanted


def as_mapping(wanted: Any) -> Mapping[str, Any]:
    """Return a mapping value; raises _FormError for another type."""
    if not isinstance(wanted, Mapping):
        raise _FormError(f"{clean(repr(wanted), 60)} is not a mapping of names")
    return wanted


def as_number(wanted: Any) -> int | float:
    """Return a finite number; raises _FormError for another value."""
    if isinstance(wanted, bool) or not isinstance(wanted, int | float) or not isfinite(wanted):
        raise _FormError(f"{clean(repr(wanted), 60)} is not a number")
    return wanted


def as_code(text: Any) -> str:
    """Return a reason code; raises ExpectError, with the nearest code, for an unknown one."""
    try:
        return PendingReason(str(text)).value
    except ValueError:
        near = get_close_matches(str(text), list(PendingReason), 1)
        remedy = f"did you mean {str(near[0])!r}?" if near else f"use one of {', '.join(PendingReason)}"
        raise ExpectError(f"{clean(repr(text), 60)} is not a reason code; {remedy}") from None


def as_amount(resource: str, value: Any) -> int:
    """Return a quantity of a resource in base units; raises ExpectError if it cannot be parsed."""
    if not isinstance(value, str | int | float):
        raise ExpectError(f"{clean(repr(value), 60)} is not a quantity; write it as 8, 500m, 1.5Gi or 2e3")
    try:
        return amount(resource, value)
    except ValueError as error:
        raise ExpectError(str(error)) from None


def _codes(wanted: Any) -> None:
    for text in as_mapping(wanted).values():
        as_code(text)


def _evictions(wanted: Any) -> None:
    for entry in as_list(wanted):
        fields = as_mapping(entry)
        if "workload" not in fields or any(key not in _ENTRY for key in fields):
            raise ExpectError(f"an eviction needs workload and takes by, reason; got {clean(repr(entry), 120)}")


def _true(wanted: Any) -> None:
    if wanted is not True:
        raise ExpectError("noEvictions takes only true; use evicted to name victims")


def _amounts(wanted: Any) -> None:
    said = 0
    for flavors in as_mapping(wanted).values():
        for resources in as_mapping(flavors).values():
            for resource, value in as_mapping(resources).items():
                as_amount(resource, value)
                said += 1
    if not said:
        raise ExpectError("no resource is given; write queue: {flavor: {resource: amount}}")


def _expect_forms_numbers(wanted: Any) -> None:
    for value in as_mapping(wanted).values():
        as_number(value)


def _pods(wanted: Any) -> None:
    for pods in as_mapping(wanted).values():
        as_list(pods)


def _pools(wanted: Any) -> None:
    said = 0
    for facts in as_mapping(wanted).values():
        for key, value in as_mapping(facts).items():
            if key not in POOL:
                raise ExpectError(f"{clean(repr(key), 60)} is not a field of a pool; use one of {', '.join(POOL)}")
            as_number(value)
            said += 1
    if not said:
        raise ExpectError("no field is given; write pool: {nodes: 1}")


FORMS: Mapping[str, tuple[Callable[[Any], object], str]] = {
    "admitted": (as_list, "[ml/train]"),
    "pending": (_codes, "{ml/train: quota}"),
    "evicted": (_evictions, "[{workload: ml/train, by: ml/serve}]"),
    "usage": (_amounts, "{queue: {flavor: {nvidia.com/gpu: 8}}}"),
    "borrowed": (_expect_forms_numbers, "{queue: 4}"),
    "lent": (_expect_forms_numbers, "{queue: 4}"),
    "share": (_expect_forms_numbers, "{queue: 50}"),
    "nodes": (_pods, "{node-1: [train-0]}"),
    "freeNodes": (as_number, "2"),
    "lostGpuHours": (as_number, "1.5"),
    "cost": (as_number, "12.50"),
    "pools": (_pools, "{pool: {nodes: 1}}"),
    "noEvictions": (_true, "true"),
}
"""Key → its reader, and an example of its value."""


def read_form(key: str, wanted: Any) -> None:
    """Check the value of a key; raises ExpectError if it has the wrong form."""
    read, written = FORMS[key.removesuffix(INCLUDES)]
    try:
        read(wanted)
    except _FormError as error:
        raise ExpectError(f"{key}: {error}; write {key}: {written}") from None
    except ExpectError as error:
        raise ExpectError(f"{key}: {error}") from None
