"""Shares equal parts of objects to save memory: 100,000 workloads have a few dozen different pod templates.

Decoding creates each part anew, but objects are immutable, so equal parts can be shared. Mappings in a different order
are not equal.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from gpuconsole.model.cluster import Pod
from gpuconsole.model.job import Job
from gpuconsole.model.labels import NO_LABELS
from gpuconsole.model.objects import Object
from gpuconsole.model.pod_template import PodSet, PodTemplate
from gpuconsole.model.workloads import Admission, Condition, PodSetNeeds, Workload

MOST = 4096
"""Most values of a type that are kept."""
LARGEST = 4096
"""Largest value in bytes that is kept; larger ones are rarely repeated."""
_ENCODER = msgspec.msgpack.Encoder()
_T = TypeVar("_T")


class InternTable(dict[bytes | str, _T]):
    """Cache that returns the same object for equal values of one type. Mutable; thread-safe."""

    def one(self, value: _T) -> _T:
        """Return the cached object that equals this value; caches and returns the value itself if there is none."""
        said = value if isinstance(value, str) else _ENCODER.encode(value)
        known = self.get(said)
        return self.keep(said, value) if known is None else known

    def keep(self, said: bytes | str, value: _T) -> _T:
        """Cache a value under its encoding `said`, unless it is too large, and return it."""
        if len(said) <= LARGEST:
            if len(self) >= MOST:
                self.clear()
            self[said] = value
        return value


_TEXTS = InternTable[str]()
_MAPPINGS = InternTable[Mapping[str, str]]()
_POD_SETS = InternTable[PodSet]()
_TEMPLATES = InternTable[PodTemplate]()
_ADMISSIONS = InternTable[Admission]()
_NEEDS = InternTable[PodSetNeeds]()


def intern(obj: Object) -> Object:
    """Return an equal object that shares its parts, such as the pod template, with earlier objects."""
    match obj:
        case Workload():
            return _workload(obj)
        case Job():
            return replace(obj, pod_sets=tuple(map(_pod_set, obj.pod_sets)), **_names(obj))
        case Pod():
            return replace(obj, template=_template(obj.template), **_names(obj))
        case _:
            return obj


def _names(obj: Workload | Job | Pod) -> dict[str, Any]:
    return {
        "namespace": _TEXTS.one(obj.namespace),
        "labels": _MAPPINGS.one(obj.labels),
        "annotations": _MAPPINGS.one(obj.annotations),
    }


def _workload(workload: Workload) -> Workload:
    admission = workload.admission
    return replace(
        workload,
        **_names(workload),
        queue=_TEXTS.one(workload.queue),
        priority_class=_TEXTS.one(workload.priority_class),
        priority_kind=_TEXTS.one(workload.priority_kind),
        pod_sets=tuple(map(_pod_set, workload.pod_sets)),
        conditions=tuple(map(_condition, workload.conditions)),
        admission=None if admission is None else _ADMISSIONS.one(admission),
        resource_requests=tuple(map(_NEEDS.one, workload.resource_requests)),
    )


def _condition(condition: Condition) -> Condition:
    text = _TEXTS.one
    return Condition(
        text(condition.type), condition.status, text(condition.reason), text(condition.message), condition.since
    )


def _pod_set(pod_set: PodSet) -> PodSet:
    said = _ENCODER.encode(pod_set)
    known = _POD_SETS.get(said)
    return known or _POD_SETS.keep(said, replace(pod_set, template=_template(pod_set.template)))


def _template(template: PodTemplate) -> PodTemplate:
    """Share a template's parts; labels and hostname, which often differ per pod, are interned separately."""
    rest = _TEMPLATES.one(replace(template, labels=NO_LABELS, annotations=NO_LABELS, hostname=""))
    labels, annotations = _MAPPINGS.one(template.labels), _MAPPINGS.one(template.annotations)
    return replace(rest, labels=labels, annotations=annotations, hostname=template.hostname)
