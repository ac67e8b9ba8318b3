"""Metadata of an object: name and namespace, validated as in the API server, labels, and times.

An object with a generateName gets a name of the same form as in the API server: the prefix, cut to 58 characters, and
five characters of an alphabet without vowels (k8s.io/apiserver/pkg/storage/names/generate.go,
k8s.io/apimachinery/pkg/util/rand). There they are random; here they come from a sequence that is the same in every run
and repeats no name of one prefix.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha1
from typing import Any

from msgspec import Struct

from gpuconsole.model.clock import Time
from gpuconsole.model.documents.findings import LABEL, SUBDOMAIN
from gpuconsole.model.documents.reader import Reader, shown
from gpuconsole.model.labels import NO_LABELS
from gpuconsole.model.text import MAX_NAME

PATH = re.compile(r"\S+")
KEY = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
"""Pattern of the key of a label, an annotation or a taint."""
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
    """Read a name; one that the API server refuses is reported under `code`, but used.

    `form` and `limit` are the valid pattern and length; a missing name is reported if `required`.
    """
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


ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
LENGTH = 5
"""Length of the generated part of a name."""
LONGEST_PREFIX = 63 - LENGTH
_NAMES = len(ALPHABET) ** LENGTH
_STEP = 8_675_309
"""Coprime to the number of names, so that the sequence contains all of them before it repeats."""


def generated_name(prefix: str, number: int = 0, salt: str = "") -> str:
    """Return the name with this `number` (from 0) for one generateName; another `salt` gives another sequence."""
    prefix = prefix[:LONGEST_PREFIX]
    digest = sha1(f"{salt}\n{prefix}".encode(errors="replace"), usedforsecurity=False).digest()
    rest = (int.from_bytes(digest[:8]) + number * _STEP) % _NAMES
    suffix = ""
    for _ in range(LENGTH):
        rest, place = divmod(rest, len(ALPHABET))
        suffix += ALPHABET[place]
    return prefix + suffix


def _never(namespace: str, name: str) -> bool:
    return False


class GeneratedNames:
    """Names documents with a generateName, so that two with the same one are two objects. Stateful.

    `is_taken(namespace, name)` tells if a name exists already; the next one is tried then, as in the API server.
    """

    def __init__(self, salt: str = "", is_taken: Callable[[str, str], bool] = _never) -> None:
        self._salt = salt
        self._is_taken = is_taken
        self._given: Counter[tuple[str, str, str, str]] = Counter()

    def named(self, document: Mapping[str, Any], scope: str = "") -> Mapping[str, Any]:
        """Return the document with a name; unchanged if it has one, or no generateName. Each scope has its own
        sequence.
        """
        meta = document.get("metadata")
        if not isinstance(meta, dict) or meta.get("name") not in (None, ""):
            return document
        prefix = meta.get("generateName")
        if not isinstance(prefix, str) or not prefix:
            return document
        namespace = str(meta.get("namespace") or "default")
        key = scope, str(document.get("kind")), namespace, prefix[:LONGEST_PREFIX]
        name = self._next(key, prefix)
        while self._is_taken(namespace, name):
            name = self._next(key, prefix)
        return {**document, "metadata": {**meta, "name": name}}

    def _next(self, key: tuple[str, str, str, str], prefix: str) -> str:
        name = generated_name(prefix, self._given[key], self._salt)
        self._given[key] += 1
        return name


TOP = ("apiVersion", "kind", "metadata", "spec", "status")
"""Fields of every object."""
_FIELDS = (
    *("annotations", "creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "finalizers"),
    *("generateName", "generation", "labels", "managedFields", "name", "namespace", "ownerReferences"),
    *("resourceVersion", "selfLink", "uid", "clusterName"),
)


class Metadata(Struct, frozen=True, kw_only=True):
    """Metadata of an object. A missing name is empty, and reported."""

    name: str
    namespace: str = ""
    uid: str = ""
    created: Time = 0
    labels: Mapping[str, str] = NO_LABELS
    annotations: Mapping[str, str] = NO_LABELS

    @property
    def facts(self) -> dict[str, Any]:
        """The fields by name, to create a struct of the model from them."""
        return {name: getattr(self, name) for name in self.__struct_fields__}


def metadata(reader: Reader, now: Time, *, namespaced: bool = True) -> Metadata:
    """Read the metadata of a document; a namespaced object without a namespace is in `default`."""
    place = reader.mapping("metadata")
    place.only(*_FIELDS)
    created = place.moment("creationTimestamp")
    return Metadata(
        name=_name(place),
        namespace=_namespace(place) if namespaced else "",
        uid=place.text("uid"),
        created=now if created is None else created,
        labels=labels(place),
        annotations=annotations(place),
    )


def _name(place: Reader) -> str:
    text = name(place, "name")
    if text:
        return text
    prefix = place.text("generateName")
    if prefix:
        return generated_name(prefix)
    if place.raw("name") in (None, ""):
        place.report.error(place.at("name"), "it has no name", "give it a metadata.name", "no-name")
    return ""


def _namespace(place: Reader) -> str:
    return name(place, "namespace", LABEL, limit=LONGEST_LABEL) or "default"


def spec_of(reader: Reader, *fields: str) -> Reader:
    """Return the spec of an object; unknown fields in it and in the object are reported."""
    reader.only(*TOP)
    spec = reader.mapping("spec")
    spec.only(*fields)
    return spec
