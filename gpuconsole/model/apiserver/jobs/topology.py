"""Validation of topology annotations of a pod template (Kueue 0.19 jobframework tas_validation)."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from msgspec import Struct

from gpuconsole.model.apiserver.gates import Gates, enabled
from gpuconsole.model.apiserver.jobs.numbers import truth, whole
from gpuconsole.model.apiserver.refusals import duplicate, forbidden, invalid, required
from gpuconsole.model.documents.fields import FieldError
from gpuconsole.model.documents.findings import MapKey, Path, path_text
from gpuconsole.model.documents.syntax import label_key
from gpuconsole.model.jobs.topology import (
    GROUP,
    MOST_LAYERS,
    PREFERRED,
    REQUIRED,
    SLICE_CONSTRAINTS,
    SLICE_REQUIRED,
    SLICE_SIZE,
    UNCONSTRAINED,
)

Notes = Mapping[str, str]
_CODE = "bad-topology"
_LEVEL = "name a level of the flavor's topology"
_ONE = "drop one of them"


class Pods(Struct, frozen=True):
    """Topology-related fields of one pod set."""

    name: str
    count: int
    notes: Notes
    """Annotations of its template."""
    path: Path
    """Path of these annotations."""


def check_request(notes: Notes, path: Path, gates: Gates) -> Iterator[FieldError]:
    """Report contradictory or incomplete topology annotations."""
    modes = (REQUIRED, PREFERRED, UNCONSTRAINED)
    if sum(mode in notes for mode in modes) > 1:
        listed = ", ".join(f'"{mode}"' for mode in modes)
        detail = f"must not contain more than one topology annotation: [{listed}]"
        yield invalid(path, {}, detail, "keep one of them", _CODE)
    for key in (REQUIRED, PREFERRED, SLICE_REQUIRED):
        for message in label_key(notes[key]) if key in notes else ():
            yield invalid((*path, MapKey(key)), notes[key], message, _LEVEL, _CODE)
    yield from _check_group(notes, path)
    if UNCONSTRAINED in notes and truth(notes[UNCONSTRAINED]) is None:
        where = (*path, MapKey(UNCONSTRAINED))
        yield invalid(where, notes[UNCONSTRAINED], "must be a boolean value", 'write "true"', _CODE)
    yield from _check_slice(notes, path)
    if SLICE_CONSTRAINTS in notes:
        yield from _check_constraints(notes, path, gates)


def _check_group(notes: Notes, path: Path) -> Iterator[FieldError]:
    if GROUP not in notes:
        return
    where, name = (*path, MapKey(GROUP)), notes[GROUP]
    if name.isascii() and name.isdigit() and int(name[:30]) < 2**64:
        yield invalid(where, name, "must not be a number", "name the group with letters", _CODE)
    for key in (SLICE_SIZE, SLICE_REQUIRED):
        if key in notes:
            yield forbidden(where, f"may not be set when '{key}' is specified", _ONE)
    if PREFERRED not in notes and REQUIRED not in notes:
        detail = f"may not be set when neither '{PREFERRED}' nor '{REQUIRED}' is specified"
        yield forbidden(where, detail, f"set {REQUIRED} as well")


def _check_slice(notes: Notes, path: Path) -> Iterator[FieldError]:
    where = (*path, MapKey(SLICE_SIZE))
    if SLICE_SIZE in notes:
        size = whole(notes[SLICE_SIZE], 32)
        if size is None:
            yield invalid(
                where, notes[SLICE_SIZE], "must be a numeric value", 'write a number, such as "4"', "bad-number"
            )
        elif size < 1:
            yield invalid(
                where, notes[SLICE_SIZE], "must be greater than or equal to 1", "write 1 or more", "bad-number"
            )
        if SLICE_REQUIRED not in notes:
            detail = f"may not be set when '{SLICE_REQUIRED}' is not specified"
            yield forbidden(where, detail, f"set {SLICE_REQUIRED}, or drop it")
    elif SLICE_REQUIRED in notes:
        detail = f"must be set when '{SLICE_REQUIRED}' is specified"
        yield required(where, detail, "say how many pods a slice has", _CODE)


def _check_constraints(notes: Notes, path: Path, gates: Gates) -> Iterator[FieldError]:
    """Validate slice layers, from coarsest to finest: each size divides the one above."""
    text, where = notes[SLICE_CONSTRAINTS], (*path, MapKey(SLICE_CONSTRAINTS))
    if not enabled(gates, "TASMultiLayerTopology"):
        detail = "the TASMultiLayerTopology feature gate must be enabled to use this annotation"
        yield forbidden(where, detail, "drop it")
        return
    for key in (SLICE_REQUIRED, SLICE_SIZE):
        if key in notes:
            yield forbidden(where, f"may not be set when '{key}' is specified", _ONE)
    if GROUP in notes:
        yield forbidden((*path, MapKey(GROUP)), f"may not be set when '{SLICE_CONSTRAINTS}' is specified", _ONE)
    remedy = 'write [{"topology": "LABEL", "size": N}, …]'
    layers = parse_constraints(text)
    if layers is None:
        yield invalid(where, text, "must be a valid JSON array", remedy, _CODE)
    elif not 0 < len(layers) <= MOST_LAYERS:
        detail = f"topology constraints must contain between 1 and {MOST_LAYERS} entries"
        yield invalid(where, text, detail, remedy, _CODE)
    else:
        yield from _check_layers(layers, where)


def _check_layers(layers: Sequence[tuple[str, int]], path: Path) -> Iterator[FieldError]:
    for n, (level, size) in enumerate(layers):
        for message in label_key(level):
            yield invalid((*path, n, "topology"), level, message, _LEVEL, _CODE)
        if size < 1:
            yield invalid((*path, n, "size"), size, "must be greater than or equal to 1", "write 1 or more", _CODE)
    names = [level for level, _ in layers]
    for n, level in enumerate(names):
        if level in names[:n]:
            yield duplicate((*path, n, "topology"), f"{level} (also at index {names.index(level)})")
    for n, ((_, above), (_, below)) in enumerate(pairwise(layers), start=1):
        if below > 0 and above % below:
            detail = f"must evenly divide the parent layer size {above}"
            yield invalid((*path, n, "size"), below, detail, f"write a divisor of {above}", _CODE)


def parse_constraints(text: str) -> list[tuple[str, int]] | None:
    """Return level and size of each layer; None if invalid."""
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        return None
    found = [(entry.get("topology", ""), entry.get("size", 0)) for entry in entries]
    return found if all(isinstance(level, str) and _is_size(size) for level, size in found) else None


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def check_bound(pods: Pods) -> Iterator[FieldError]:
    """Validate that a slice is not larger than its pod set."""
    detail = f"must not be greater than pod set count {pods.count}"
    remedy = f"write {pods.count} or less"
    if SLICE_SIZE in pods.notes:
        where, size = (*pods.path, MapKey(SLICE_SIZE)), whole(pods.notes[SLICE_SIZE], 32)
        if size is not None and size > pods.count:
            yield invalid(where, pods.notes[SLICE_SIZE], detail, remedy, "bad-number")
    layers = parse_constraints(pods.notes.get(SLICE_CONSTRAINTS, "")) or ()
    if layers and layers[0][1] > pods.count:
        yield invalid((*pods.path, MapKey(SLICE_CONSTRAINTS)), layers[0][1], detail, remedy, _CODE)


def check_groups(pod_sets: Sequence[Pods]) -> Iterator[FieldError]:
    """Validate pod sets that are placed together: exactly two, one with a single pod, with the same topology
    request.
    """
    groups: dict[str, list[Pods]] = {}
    for pods in pod_sets:
        if GROUP in pods.notes and (REQUIRED in pods.notes or PREFERRED in pods.notes):
            groups.setdefault(pods.notes[GROUP], []).append(pods)
    for name, members in groups.items():
        if len(members) != 2:
            detail = f"can only define groups of exactly 2 pod sets, got: {len(members)} pod set(s)"
            for pods in members:
                yield invalid((*pods.path, MapKey(GROUP)), name, detail, "name it in two pod sets", _CODE)
        else:
            yield from _check_pair(name, *members)


def _check_pair(name: str, one: Pods, other: Pods) -> Iterator[FieldError]:
    if one.count != 1 and other.count != 1:
        detail = (
            f"can only define groups where at least one pod set has only 1 replica, got: {one.count} replica(s) and "
            f"{other.count} replica(s) in the group"
        )
        for pods in (one, other):
            yield invalid((*pods.path, MapKey(GROUP)), name, detail, "give one of them a single pod", _CODE)
    if _wish(one) != _wish(other):
        for pods, fellow in ((one, other), (other, one)):
            detail = (
                f"must specify '{REQUIRED}' or '{PREFERRED}' topology consistent with '{path_text(fellow.path)}' in "
                f"group '{name}'"
            )
            yield invalid(pods.path, {}, detail, "ask for the same level in both", _CODE)


def _wish(pods: Pods) -> tuple[str, str]:
    """Return a pod set's effective topology annotation and level."""
    key = REQUIRED if REQUIRED in pods.notes else PREFERRED
    return key, pods.notes[key]
