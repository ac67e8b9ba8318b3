"""metadata of an object: its name and namespace, checked as the API server checks them; labels and times."""

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from gpuconsole.model.clock import Time
from gpuconsole.model.cluster import NO_LABELS
from gpuconsole.model.documents.reader import Reader

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
_FIELDS = (
    *("annotations", "creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "finalizers"),
    *("generateName", "generation", "labels", "managedFields", "name", "namespace", "ownerReferences"),
    *("resourceVersion", "selfLink", "uid", "clusterName"),
)


class Metadata(Struct, frozen=True, kw_only=True):
    """What every object says about itself. An object without a name has an empty one, and is reported."""

    name: str
    namespace: str = ""
    uid: str = ""
    created: Time = 0
    labels: Mapping[str, str] = NO_LABELS
    annotations: Mapping[str, str] = NO_LABELS

    @property
    def facts(self) -> dict[str, Any]:
        """The fields of a namespaced object with labels, by the names of the model's structs."""
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
        annotations=place.labels("annotations"),
    )


def _name(place: Reader) -> str:
    name = place.text("name")
    if name:
        if not _SUBDOMAIN.fullmatch(name):
            place.report.refused(
                place.at("name"),
                f"{name!r} is no valid name",
                "use lower-case letters, digits, '-' and '.', at most 253 of them",
                "bad-name",
            )
        return name
    prefix = place.text("generateName")
    if prefix:
        return f"{prefix.rstrip('-')}-0"
    if place.raw("name") in (None, ""):
        place.report.error(place.at("name"), "it has no name", "give it a metadata.name", "no-name")
    return ""


def _namespace(place: Reader) -> str:
    namespace = place.text("namespace") or "default"
    if not _LABEL.fullmatch(namespace) or len(namespace) > 63:
        place.report.refused(
            place.at("namespace"),
            f"{namespace!r} is no valid namespace",
            "use lower-case letters, digits and '-', at most 63 of them",
            "bad-name",
        )
    return namespace


def is_label_key(text: str) -> bool:
    """True for a text that may be the key of a label."""
    return _KEY.fullmatch(text) is not None


def labels(place: Reader, key: str = "labels") -> Mapping[str, str]:
    """Read labels and report keys and values that the API server refuses."""
    found = place.labels(key, limit=400)
    for name, value in found.items():
        if not is_label_key(name):
            place.report.refused(
                place.at(key, name),
                f"{name!r} is no valid label key",
                "a key is an optional domain and '/', then at most 63 letters, digits, '-', '_' and '.'",
                "bad-label",
            )
        if len(value) > 63 or not _VALUE.fullmatch(value):
            place.report.refused(
                place.at(key, name),
                f"{value[:80]!r} is no valid label value",
                "use at most 63 letters, digits, '-', '_' and '.'",
                "bad-label",
            )
    return found
