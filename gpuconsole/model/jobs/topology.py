"""Topology annotations of a pod template, read and validated by the rules of Kueue 0.19's jobframework."""

import json
from typing import Any

from gpuconsole.model.documents.names import is_label_key
from gpuconsole.model.documents.reader import INT32, Reader, shown
from gpuconsole.model.text import clean
from gpuconsole.model.workloads import TopologyRequest

PREFIX = "kueue.x-k8s.io/"
REQUIRED = PREFIX + "podset-required-topology"
PREFERRED = PREFIX + "podset-preferred-topology"
UNCONSTRAINED = PREFIX + "podset-unconstrained-topology"
SLICE_REQUIRED = PREFIX + "podset-slice-required-topology"
SLICE_SIZE = PREFIX + "podset-slice-size"
SLICE_CONSTRAINTS = PREFIX + "podset-slice-required-topology-constraints"
GROUP = PREFIX + "podset-group-name"

MOST_LAYERS = 3
_TRUE = ("1", "t", "T", "TRUE", "true", "True")
_FALSE = ("0", "f", "F", "FALSE", "false", "False")


def topology_request(
    template: Reader, count: int, *, index: str = "", subgroup: str = "", subgroups: int | None = None
) -> TopologyRequest | None:
    """The request that a template's annotations make, or None where they ask for nothing.

    `count` is the number of pods; `index`, `subgroup` and `subgroups` are what the kind of job says about its pods'
    order.
    """
    place = template.down("metadata", "annotations")
    if not any(key in place for key in (REQUIRED, PREFERRED, UNCONSTRAINED, SLICE_REQUIRED, SLICE_CONSTRAINTS)):
        return None
    _check_modes(place)
    size = _slice_size(place, count)
    required, preferred = _level(place, REQUIRED), _level(place, PREFERRED)
    grouped = _group(place, bool(required or preferred))
    return TopologyRequest(
        required=required,
        preferred="" if required else preferred,
        unconstrained=not required and not preferred and _flag(place, UNCONSTRAINED),
        slice_required=_level(place, SLICE_REQUIRED) if size is not None else "",
        slice_size=size,
        slice_constraints=_constraints(place, count),
        group=grouped,
        index_label=index,
        subgroup_index_label=subgroup,
        subgroup_count=subgroups,
    )


def _check_modes(place: Reader) -> None:
    modes = [key for key in (REQUIRED, PREFERRED, UNCONSTRAINED) if key in place]
    if len(modes) > 1:
        place.report.refused(
            place.at(modes[1]),
            f"must not contain more than one topology annotation: {', '.join(modes)}",
            "keep one of them",
            "bad-topology",
        )


def _level(place: Reader, key: str) -> str:
    level = place.text(key, limit=400)
    if level and not is_label_key(level):
        place.report.refused(
            place.at(key), f"{level!r} is no node label", "name a level of the flavor's topology", "bad-topology"
        )
    return level


def _flag(place: Reader, key: str) -> bool:
    value = place.text(key)
    if key in place and value not in (*_TRUE, *_FALSE):
        place.report.refused(place.at(key), f"{shown(value)}: must be a boolean value", 'write "true"', "bad-topology")
    return value in _TRUE


def _slice_size(place: Reader, count: int) -> int | None:
    if SLICE_SIZE not in place:
        if SLICE_REQUIRED in place:
            problem = f"{SLICE_SIZE} must be set when '{SLICE_REQUIRED}' is specified"
            place.report.refused(place.at(SLICE_SIZE), problem, "say how many pods a slice has", "bad-topology")
        return None
    if SLICE_REQUIRED not in place:
        problem = f"{SLICE_SIZE} may not be set when '{SLICE_REQUIRED}' is not specified"
        place.report.refused(place.at(SLICE_SIZE), problem, f"set {SLICE_REQUIRED}, or drop it", "bad-topology")
        return None
    return whole(place, SLICE_SIZE, 1, count, f"must not be greater than pod set count {count}")


def whole(place: Reader, key: str, low: int, high: int, above: str) -> int | None:
    """A number that stands as text in a label or annotation; `above` says what is wrong if it is above `high`."""
    text = place.text(key)
    if len(text) > 10 or not text.isascii() or not text.isdigit():
        place.report.refused(
            place.at(key), f"{shown(text)}: must be a numeric value", 'write a whole number, such as "4"', "bad-number"
        )
        return None
    number = int(text)
    if number < low or number > min(high, INT32):
        problem = f"must be greater than or equal to {low}" if number < low else above
        place.report.refused(place.at(key), f"{number}: {problem}", f"write {low} to {high}", "bad-number")
        return None
    return number


def _constraints(place: Reader, count: int) -> tuple[tuple[str, int], ...]:
    if SLICE_CONSTRAINTS not in place:
        return ()
    found = _parse_constraints(place.raw(SLICE_CONSTRAINTS))
    if not 0 < len(found) <= MOST_LAYERS:
        place.report.refused(
            place.at(SLICE_CONSTRAINTS),
            f"topology constraints must contain between 1 and {MOST_LAYERS} entries",
            'write [{"topology": "LABEL", "size": N}, …]',
            "bad-topology",
        )
        return ()
    if found[0][1] > count:
        place.report.refused(
            place.at(SLICE_CONSTRAINTS),
            f"{found[0][1]}: must not be greater than pod set count {count}",
            f"write {count} or less",
            "bad-topology",
        )
    return found


def _parse_constraints(value: Any) -> tuple[tuple[str, int], ...]:
    try:
        entries = json.loads(value) if isinstance(value, str) and len(value) < 4096 else []
        return tuple((clean(str(e["topology"])), max(1, min(INT32, int(e["size"])))) for e in entries)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return ()


def _group(place: Reader, placed: bool) -> str:
    name = place.text(GROUP)
    if not name:
        return ""
    path = place.at(GROUP)
    if name.isdigit():
        place.report.refused(path, f"{name}: must not be a number", "name the group with letters", "bad-topology")
    for key in (SLICE_SIZE, SLICE_REQUIRED):
        if key in place:
            place.report.refused(path, f"may not be set when '{key}' is specified", "drop one of them", "bad-topology")
    if not placed:
        problem = f"may not be set when neither '{PREFERRED}' nor '{REQUIRED}' is specified"
        place.report.refused(path, problem, f"set {REQUIRED} as well", "bad-topology")
        return ""
    return name
