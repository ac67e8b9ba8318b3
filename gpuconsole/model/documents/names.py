"""Names, label keys and label values, validated with the API server's patterns."""

import re
from collections.abc import Mapping, Sequence

from gpuconsole.model.documents.reader import Reader, shown
from gpuconsole.model.text import MAX_NAME

SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
PATH = re.compile(r"\S+")
KEY = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
LONGEST_LABEL = 63
LONGEST_KEY = MAX_NAME + 1 + LONGEST_LABEL
_REMEDIES = {
    SUBDOMAIN: "use lower-case letters, digits, '-' and '.', at most {} of them",
    LABEL: "use lower-case letters, digits and '-', at most {} of them",
    PATH: "use no blanks, and at most {} characters",
    KEY: "a key is an optional domain and '/', then at most 63 letters, digits, '-', '_' and '.'",
}


def name(
    place: Reader,
    key: str,
    form: re.Pattern[str] = SUBDOMAIN,
    *,
    limit: int = MAX_NAME,
    required: bool = False,
    code: str = "bad-name",
) -> str:
    """Read a name; one that the API server refuses is reported, but used."""
    text = place.required(key) if required else place.text(key, limit=LONGEST_KEY)
    raw = place.raw(key) if place.report.is_recorded else None
    if isinstance(raw, str) and raw and (len(raw) > limit or not form.fullmatch(raw)):
        place.report.refused(place.at(key), f"{shown(raw)} is not a valid name", _REMEDIES[form].format(limit), code)
    return text


def key_name(place: Reader, key: str, *, required: bool = False) -> str:
    """Read the key of a label or of a taint."""
    return name(place, key, KEY, limit=LONGEST_KEY, required=required, code="bad-label")


def is_label_key(text: str) -> bool:
    """True for a valid label key."""
    return KEY.fullmatch(text) is not None


def is_label_value(text: str) -> bool:
    """True for a valid label value."""
    return len(text) <= LONGEST_LABEL and _VALUE.fullmatch(text) is not None


def annotations(place: Reader) -> Mapping[str, str]:
    """Read annotations, and report keys that the API server refuses."""
    found = place.labels("annotations")
    _check_keys(place, "annotations", found)
    return found


def _check_keys(place: Reader, key: str, found: Mapping[str, str]) -> None:
    for label in found if place.report.is_recorded else ():
        if not is_label_key(label):
            problem = f"{shown(label)} is not a valid key"
            place.report.refused(place.at(key, label), problem, _REMEDIES[KEY], "bad-label")


def labels(place: Reader, key: str = "labels") -> Mapping[str, str]:
    """Read labels, and report keys and values that the API server refuses."""
    found = place.labels(key, limit=400)
    if not place.report.is_recorded:
        return found
    _check_keys(place, key, found)
    for label, value in found.items():
        if not is_label_value(value):
            place.report.refused(
                place.at(key, label),
                f"{value[:80]!r} is not a valid label value",
                "use at most 63 letters, digits, '-', '_' and '.'",
                "bad-label",
            )
    return found


def unique(place: Reader, key: str, names: Sequence[str], field: str = "", *, fatal: bool = False) -> None:
    """Report entries of the list under `key` (by their `field`) that repeat an earlier name.

    `fatal`: entries with the same name cannot be distinguished here either.
    """
    report = place.report.error if fatal else place.report.refused
    seen: set[str] = set()
    for position, text in enumerate(names):
        if text and text in seen:
            path = place.at(key, position, field) if field else place.at(key, position)
            report(path, f"{shown(text)} stands twice", "drop or rename one of them", "duplicate")
        seen.add(text)
