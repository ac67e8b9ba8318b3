"""metadata of an object: name and namespace, validated as in the API server; labels and times."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from gpuconsole.model.clock import Time
from gpuconsole.model.documents.generated_names import generated_name
from gpuconsole.model.documents.names import LABEL, LONGEST_LABEL, annotations, labels, name
from gpuconsole.model.documents.reader import Reader
from gpuconsole.model.labels import NO_LABELS

TOP = ("apiVersion", "kind", "metadata", "spec", "status")
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
        """The fields by name, as arguments of the model's structs for namespaced objects with labels."""
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
