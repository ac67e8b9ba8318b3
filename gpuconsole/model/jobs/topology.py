"""Topology annotations of a pod template, read as in Kueue 0.19's jobframework; its webhooks validate them."""

import json
from typing import Any

from gpuconsole.model.documents.reader import INT32, Reader, shown
from gpuconsole.model.pod_sets import TopologyRequest
from gpuconsole.model.text import clean

PREFIX = "kueue.x-k8s.io/"
REQUIRED = PREFIX + "podset-required-topology"
PREFERRED = PREFIX + "podset-preferred-topology"
UNCONSTRAINED = PREFIX + "podset-unconstrained-topology"
SLICE_REQUIRED = PREFIX + "podset-slice-required-topology"
SLICE_SIZE = PREFIX + "podset-slice-size"
SLICE_CONSTRAINTS = PREFIX + "podset-slice-required-topology-constraints"
GROUP = PREFIX + "podset-group-name"

MOST_LAYERS = 3
TRUE = ("1", "t", "T", "TRUE", "true", "True")
"""Strings that Go parses as true."""


def topology_request(
    template: Reader, count: int, *, index: str = "", subgroup: str = "", subgroups: int | None = None
) -> TopologyRequest | None:
    """Return the request in a template's annotations; None if they request nothing and the pods have no order.

    `count` is the number of pods; `index`, `subgroup` and `subgroups` describe the order of the pods in this kind of
    job, which also counts in a queue where every flavor has a topology (Kueue 0.19 jobframework/tas.go Build).
    """
    place = template.down("metadata", "annotations")
    asked = any(key in place for key in (REQUIRED, PREFERRED, UNCONSTRAINED, SLICE_CONSTRAINTS))
    if not (asked or index or subgroup or (SLICE_REQUIRED in place and SLICE_SIZE in place)):
        return None
    size = _slice_size(place, count)
    required, preferred = place.text(REQUIRED, limit=400), place.text(PREFERRED, limit=400)
    return TopologyRequest(
        required=required,
        preferred="" if required else preferred,
        unconstrained=not required and not preferred and place.text(UNCONSTRAINED) in TRUE,
        slice_required=place.text(SLICE_REQUIRED, limit=400) if size is not None else "",
        slice_size=size,
        slice_constraints=_constraints(place),
        group=place.text(GROUP) if required or preferred else "",
        index_label=index,
        subgroup_index_label=subgroup,
        subgroup_count=subgroups,
    )


def _slice_size(place: Reader, count: int) -> int | None:
    text = place.text(SLICE_SIZE)
    if SLICE_REQUIRED not in place or not (text.isascii() and text.isdigit() and len(text) <= 10):
        return None
    return int(text) if 1 <= int(text) <= min(count, INT32) else None


def whole(place: Reader, key: str, low: int, high: int, above: str) -> int | None:
    """Read an integer from a label or annotation; None if it is invalid (reported). `above` is the error above
    `high`.
    """
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


def _constraints(place: Reader) -> tuple[tuple[str, int], ...]:
    found = _parse_constraints(place.raw(SLICE_CONSTRAINTS)) if SLICE_CONSTRAINTS in place else ()
    return found if len(found) <= MOST_LAYERS else ()


def _parse_constraints(value: Any) -> tuple[tuple[str, int], ...]:
    try:
        entries = json.loads(value) if isinstance(value, str) and len(value) < 4096 else []
        return tuple((clean(str(e["topology"])), max(1, min(INT32, int(e["size"])))) for e in entries)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return ()
