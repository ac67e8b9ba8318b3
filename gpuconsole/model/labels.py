"""Metadata of objects: keys, labels and selectors; node affinity, taints and tolerations."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

HOSTNAME = "kubernetes.io/hostname"
NAMESPACE_NAME = "kubernetes.io/metadata.name"
"""Label of every namespace with its name."""
NO_LABELS: Mapping[str, str] = {}
_INTEGER = re.compile(r"[-+]?[0-9]{1,18}")


class ClusterScopedObject(Struct, frozen=True, kw_only=True):
    """An object that belongs to no namespace. Subclasses define the field `name`."""

    if TYPE_CHECKING:
        name: str

    @property
    def key(self) -> str:
        """Name of the object."""
        return self.name


class NamespacedObject(Struct, frozen=True, kw_only=True):
    """An object in a namespace. Subclasses define the fields `namespace` and `name`."""

    if TYPE_CHECKING:
        namespace: str
        name: str

    @property
    def key(self) -> str:
        """`namespace/name`"""
        return f"{self.namespace}/{self.name}"


class Taint(Struct, frozen=True, omit_defaults=True):
    """Taint of a node or flavor, which repels pods that do not tolerate it."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"

    @property
    def keeps_pods_away(self) -> bool:
        """True if a pod without a toleration may not run there; PreferNoSchedule only advises against it."""
        return self.effect in ("NoSchedule", "NoExecute")


class Toleration(Struct, frozen=True, omit_defaults=True):
    """Toleration of taints. An empty key with operator Exists tolerates everything, an empty effect any effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    seconds: int | None = None

    def tolerates(self, taint: Taint) -> bool:
        """True if this toleration covers the taint (k8s.io/api/core/v1 Toleration.ToleratesTaint)."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        return self.operator == "Exists" or (bool(self.key) and self.value == taint.value)


class Requirement(Struct, frozen=True, omit_defaults=True):
    """One expression of a selector: operator is In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """True if these labels satisfy the expression (k8s.io/component-helpers nodeaffinity)."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt":
                return self._compares(value)
        return False

    def _compares(self, value: str | None) -> bool:
        texts = (value or "", self.values[0] if self.values else "")
        if not all(_INTEGER.fullmatch(text) for text in texts):
            return False
        left, right = map(int, texts)
        return left > right if self.operator == "Gt" else left < right


class LabelSelector(Struct, frozen=True, omit_defaults=True):
    """Selects objects by labels; an empty selector selects everything, `None` in its place nothing."""

    match_labels: Mapping[str, str] = NO_LABELS
    match_expressions: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """True if all labels and expressions match."""
        return all(labels.get(k) == v for k, v in self.match_labels.items()) and all(
            requirement.matches(labels) for requirement in self.match_expressions
        )


class NodeTerm(Struct, frozen=True, omit_defaults=True):
    """One alternative of a node affinity: all its expressions must hold. An empty term matches nothing."""

    expressions: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str], name: str) -> bool:
        """True if a node with these labels and this name matches."""
        if not self.expressions and not self.fields:
            return False
        fields = {"metadata.name": name}
        return all(one.matches(labels) for one in self.expressions) and all(one.matches(fields) for one in self.fields)


class PreferredTerm(Struct, frozen=True, omit_defaults=True):
    """A term that raises a node's score by its weight (1 to 100)."""

    weight: int
    term: NodeTerm
