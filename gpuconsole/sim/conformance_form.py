"""The format of conformance scenarios and their results, with and without seconds."""

from collections.abc import Iterable, Mapping
from typing import Any

from gpuconsole.model.decisions import AdmissionDecision, Admit, Preempt
from gpuconsole.model.objects import TABLES
from gpuconsole.model.resources import format_quantity
from gpuconsole.model.workloads import PodSetAssignment

Document = Mapping[str, Any]
Queues = dict[str, list[str]]
"""ClusterQueue → workloads."""

_PLACES = {kind.__name__: place for place, kind in enumerate(TABLES)}


def creation_order(documents: Iterable[Document]) -> list[Document]:
    """The initial objects of a scenario in the order of creation: by kind; unknown kinds last."""
    return sorted(documents, key=lambda document: _PLACES.get(str(document.get("kind", "")), len(_PLACES)))


def sorted_queues(queues: Queues) -> Queues:
    """Sort the workloads of each ClusterQueue by key."""
    return {name: sorted(keys) for name, keys in queues.items()}


def admitted_form(decided: Iterable[AdmissionDecision]) -> list[dict[str, Any]]:
    """The admissions of a cycle, by workload."""
    admitted = sorted((d for d in decided if isinstance(d, Admit)), key=lambda d: d.workload)
    return [
        {
            "workload": decision.workload,
            "clusterQueue": decision.admission.cluster_queue,
            "podSets": [_pod_set(assignment) for assignment in decision.admission.pod_sets],
        }
        for decision in admitted
    ]


def preempted_form(decided: Iterable[AdmissionDecision]) -> list[dict[str, Any]]:
    """The preemptions of a cycle, by workload."""
    preempted = sorted((d for d in decided if isinstance(d, Preempt)), key=lambda d: d.workload)
    return [{"workload": d.workload, "reason": d.rule.value, "message": d.message} for d in preempted]


def _pod_set(assignment: PodSetAssignment) -> dict[str, Any]:
    result: dict[str, Any] = {
        "name": assignment.name,
        "count": assignment.count,
        "flavors": dict(assignment.flavors),
        "usage": {name: format_quantity(name, amount) for name, amount in assignment.usage.items()},
    }
    if assignment.topology:
        result["topology"] = [{"values": list(domain.values), "count": domain.count} for domain in assignment.topology]
    return result
