"""Redaction of API objects one after the other: names become pseudonyms, the same ones in all objects.

The rules are those of Snapshot files (`model.redaction`): every string is a name unless it is known to be something
else. Names that are known at the begin get pseudonyms in their order, because Kueue and the engine sort names. Labels
and annotations that no scheduling rule reads are removed.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from gpuconsole.model.redaction import COMMON, KINDS, NAMING, PLAIN, ROLE, VOCABULARY, WORD, Pseudonyms, redact_settings

_KUEUE = "kueue.x-k8s.io"
_LABELLED = ("Namespace", "Node")
"""Kinds whose labels are all kept, with pseudonyms, because selectors of users name them."""
_LABELS = ("labels", "nodeLabels", "nodeSelector", "matchLabels")
"""Mappings whose keys and values are chosen by users."""
_REMOVED = frozenset(
    {
        *("image", "command", "args", "env", "envFrom", "description", "hostname", "subdomain", "hostIP"),
        *("containerStatuses", "initContainerStatuses", "finalizers", "managedFields"),
        *("addresses", "podIP", "podIPs", "hostIPs", "podCIDR", "podCIDRs", "nodeInfo", "images", "volumesInUse"),
        *("volumesAttached", "volumes", "volumeMounts", "imagePullSecrets", "serviceAccountName", "serviceAccount"),
    }
)
"""Fields that are removed: what runs in containers and their state, addresses, hardware, volumes, and free text.

No rule of Kueue reads them.
"""
_KEPT = ("uid", "resourceVersion", "kind", "operator", "effect", "type", "status", "reason", "phase", "topologyPolicy")
"""Fields with words of an API, or values that the API server makes."""
_DIGITS = 6
"""Digits of the number in a pseudonym, padded with zeros, so that pseudonyms sort in the order of their numbers."""
_QUANTITY = re.compile(r"[+-]?[0-9.]+[A-Za-z%]{0,3}|([0-9]+(ms|[dhms]))+|\d{4}-\d\d-\d\dT[0-9:.]+Z")
_API_WORD = re.compile(r"[A-Z][A-Za-z]+")
"""Matches enumerated values such as `LowerPriority`; names of objects have no capital letters."""
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_WORDS = {"key": "key", "nodeLabel": "key", "nodeName": "node", "cohort": "queue", "cohortName": "queue"}
"""Field → word from which the pseudonym of its value is made; others get `name`."""
_GROUPS = ("batch", "apps", "v1")
"""API groups and versions without a domain."""

Document = dict[str, Any]


class DocumentRedactor:
    """Replaces the names in API objects. Mutates: it remembers the pseudonyms."""

    def __init__(self) -> None:
        self._pseudonyms = Pseudonyms(digits=_DIGITS)
        self._messages: list[tuple[Document, str]] = []
        """Messages in the object at work: where they are, and their texts. They are replaced last."""

    def note(self, documents: Iterable[Document]) -> None:
        """Give pseudonyms to the names and labels of objects that are known at the begin, in their order."""
        known = list(documents)
        for name, word in sorted({pair for one in known for pair in _own_names(one)}):
            self._pseudonyms.call(name, word)
        labels = {pair for one in known for pair in (one["metadata"].get("labels") or {}).items()}
        for key, value in sorted(labels):
            self._label_value(key, value)

    def redact(self, document: Document) -> Document:
        """Return a copy with pseudonyms."""
        for name, word in _own_names(document):
            self._pseudonyms.call(name, word)
        kind = document["kind"]
        made = self._mapping(document, "", kind)
        is_kueue = document["apiVersion"].startswith(_KUEUE)
        for place, text in self._messages:
            place["message"] = self._pseudonyms.said(text) if is_kueue else ""
        self._messages.clear()
        return made

    def settings(self, tree: Any) -> Any:
        """Return settings of Kueue (a JSON value) with pseudonyms; call it after `note`."""
        return redact_settings(tree, self._pseudonyms)

    def _mapping(self, mapping: Document, field: str, kind: str) -> Document:
        made: Document = {}
        labels, annotations = field in _LABELS, field == "annotations"
        for key, inner in mapping.items():
            if labels or annotations:
                read = key.startswith(_KUEUE) if annotations else field != "labels" or _is_read(key, kind)
                if read:
                    made[self._key(key, is_label=True)] = self._label_value("" if annotations else key, inner)
            elif key == "message" and isinstance(inner, str):
                # Messages of admission checks are written by controllers that are not known here.
                if field != "admissionChecks":
                    self._messages.append((made, inner))
            elif key in ("value", "values") and isinstance(mapping.get("key"), str):
                # Requirements of selectors, taints and tolerations: {key, operator, value or values}
                made[key] = self._selected(mapping["key"], inner)
            elif inner is not None and key not in _REMOVED:
                made[self._key(key, is_label=False)] = self._value(inner, key, kind)
        return made

    def _value(self, value: Any, field: str, kind: str) -> Any:
        if isinstance(value, dict):
            return self._mapping(value, field, kind)
        if isinstance(value, list):
            return [self._value(one, field, kind) for one in value]
        if not isinstance(value, str) or _is_public(value, field):
            return value
        return self._replaced(value, _WORDS.get(field, "name"))

    def _selected(self, key: str, chosen: Any) -> Any:
        if isinstance(chosen, list):
            return [self._label_value(key, one) for one in chosen]
        return self._label_value(key, chosen)

    def _label_value(self, key: str, value: Any) -> Any:
        return self._replaced(value, "value") if isinstance(value, str) and _is_private(key, value) else value

    def _key(self, key: str, *, is_label: bool) -> str:
        if key.startswith(ROLE):
            return ROLE + self._replaced(key.removeprefix(ROLE), "value")
        return self._replaced(key, "key") if _is_private_key(key, is_label) else key

    def _replaced(self, text: str, word: str) -> str:
        """Return a text with a pseudonym for each of its words; one for the whole text if it is not ASCII."""
        if not text.isascii():
            known = hashlib.sha256(text.encode(errors="replace")).hexdigest()
            self._pseudonyms.call(known, word)
            return self._pseudonyms.text(known)
        for part in WORD.findall(text):
            self._pseudonyms.call(part, word)
        return self._pseudonyms.text(text)


def _own_names(document: Document) -> Iterator[tuple[str, str]]:
    """Yield the name and the namespace of an object, with the words of their pseudonyms."""
    meta = document["metadata"]
    yield meta.get("namespace") or "", "namespace"
    yield meta["name"], KINDS.get(document["kind"], "name")


_CHECKED = 65_536
"""Number of strings whose kind is remembered, because most objects repeat the same ones."""


def _is_read(label: str, kind: str) -> bool:
    """True if a rule may read this label of an object of a kind, or of its pod template."""
    return kind in _LABELLED or VOCABULARY.search(label) is not None


@lru_cache(_CHECKED)
def _is_private_key(key: str, is_label: bool) -> bool:
    """True if the key of a mapping is chosen by a user: fields have no dot, hyphen or slash, resources have."""
    return (is_label or re.search(r"[-./]", key) is not None) and VOCABULARY.search(key) is None


@lru_cache(_CHECKED)
def _is_private(label: str, value: str) -> bool:
    """True if the value of a label is chosen by a user."""
    if label and VOCABULARY.search(label) and not NAMING.search(label):
        return False
    return not (VOCABULARY.search(value) or any(known.fullmatch(value) for known in (PLAIN, _QUANTITY, _UUID)))


@lru_cache(_CHECKED)
def _is_public(value: str, field: str) -> bool:
    if field in _KEPT or value in COMMON or VOCABULARY.search(value):
        return True
    if field == "apiVersion":
        return value.partition("/")[0] in _GROUPS
    return any(known.fullmatch(value) for known in (PLAIN, _QUANTITY, _API_WORD, _UUID))
