"""Conversion of v1beta1 objects to v1beta2, which renames and moves some fields (Kueue 0.19 apis/kueue/v1beta1)."""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from gpuconsole.model.documents.findings import Path

_V1BETA1 = "kueue.x-k8s.io/v1beta1"
Spec = dict[str, Any]
Moved = dict[Path, Path]
_CLASS_SOURCES = {
    "kueue.x-k8s.io/workloadpriorityclass": ("kueue.x-k8s.io", "WorkloadPriorityClass"),
    "scheduling.k8s.io/priorityclass": ("scheduling.k8s.io", "PriorityClass"),
}


class Converted(Struct, frozen=True):
    """A document in the newest version, with the original paths of its parts."""

    document: Mapping[str, Any]
    moved: Mapping[Path, Path] = {}
    """New path → old path."""

    def origin(self, path: Path) -> Path:
        """Return the path in the original document."""
        for new, old in self.moved.items():
            if path[: len(new)] == new:
                return old + path[len(new) :]
        return path


def is_v1beta1(document: Mapping[str, Any]) -> bool:
    """True if a document of Kueue's API is v1beta1."""
    return document.get("apiVersion") == _V1BETA1


def to_newest(document: Mapping[str, Any], kind: str) -> Converted:
    """Rename the fields of an older version; fields without a successor are dropped."""
    spec = document.get("spec")
    change = _CHANGES.get(kind)
    if not is_v1beta1(document) or change is None or not isinstance(spec, dict):
        return Converted(document)
    new = dict(spec)
    moved = change(new)
    return Converted({**document, "spec": new}, moved)


def _renamed(spec: Spec, old: str, new: str) -> Moved:
    if old not in spec:
        return {}
    spec[new] = spec.pop(old)
    return {("spec", new): ("spec", old)}


def _queue(spec: Spec) -> Moved:
    moved = _renamed(spec, "cohort", "cohortName")
    checks = spec.pop("admissionChecks", None)
    if isinstance(checks, list) and checks:
        listed: Path = ("spec", "admissionChecksStrategy", "admissionChecks")
        spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": check} for check in checks]}
        moved |= {(*listed, n, "name"): ("spec", "admissionChecks", n) for n in range(len(checks))}
        moved[listed] = ("spec", "admissionChecks")
    fungibility = spec.get("flavorFungibility")
    if isinstance(fungibility, dict):
        older = {"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"}
        spec["flavorFungibility"] = {
            key: "MayStopSearch" if older.get(key) == word else word for key, word in fungibility.items()
        }
    return moved


def _workload(spec: Spec) -> Moved:
    source, name = spec.pop("priorityClassSource", ""), spec.pop("priorityClassName", "")
    if source not in _CLASS_SOURCES:
        return {}
    group, kind = _CLASS_SOURCES[source]
    spec["priorityClassRef"] = {"group": group, "kind": kind, "name": name}
    return {
        ("spec", "priorityClassRef", "name"): ("spec", "priorityClassName"),
        ("spec", "priorityClassRef"): ("spec", "priorityClassSource"),
    }


def _cluster(spec: Spec) -> Moved:
    source = {key: spec.pop(key) for key in ("kubeConfig", "clusterProfileRef") if key in spec}
    spec["clusterSource"] = source
    return {("spec", "clusterSource"): ("spec",)}


def _check(spec: Spec) -> Moved:
    spec.pop("retryDelayMinutes", None)
    return {}


_CHANGES: Mapping[str, Callable[[Spec], Moved]] = {
    "ClusterQueue": _queue,
    "Cohort": lambda spec: _renamed(spec, "parent", "parentName"),
    "Workload": _workload,
    "MultiKueueCluster": _cluster,
    "AdmissionCheck": _check,
}
