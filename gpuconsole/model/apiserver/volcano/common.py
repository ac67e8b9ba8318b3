"""Errors of Volcano's webhooks, and checks that several of its kinds share.

Errors of Volcano's webhooks: Volcano's text, the field, and a remedy.

Topological order of tasks or flows that depend on each other.

Checks that a document decodes into Volcano's Go types, which comes before the webhooks.

Network topology of jobs, tasks and PodGroups: the highest tier by number or by name, not both.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from gpuconsole.model.apiserver.jobs.framework import at
from gpuconsole.model.documents.findings import DocumentFindings, Path
from gpuconsole.model.resources import parse_quantity


class Objection(Struct, frozen=True):
    """Error of one of Volcano's webhooks."""

    path: Path
    text: str
    """As Volcano writes it, with the spaces and punctuation that separate it from others in the message."""
    remedy: str
    code: str

    @property
    def problem(self) -> str:
        """The text without these separators."""
        return self.text.strip(" ;\n.")


def message_of(objections: Iterable[Objection]) -> str:
    """Join objections to the webhook's message; empty if there are none."""
    return "".join(objection.text for objection in objections)


def report(findings: DocumentFindings, at: Path, objections: Iterable[Objection]) -> None:
    """Report objections to the object at a path."""
    for objection in objections:
        findings.refused((*at, *objection.path), objection.problem, objection.remedy, objection.code)


def order_of(dependencies: Mapping[str, Sequence[str]]) -> list[str] | None:
    """Return the names, each after its dependencies; None for a cycle or a missing dependency.

    Of the names that could come next, the one whose dependencies were completed last comes first (Volcano jobs/validate
    topoSort).
    """
    waits = {name: len(before) for name, before in dependencies.items()}
    free = [name for name, count in waits.items() if not count]
    done: list[str] = []
    while free:
        last = free.pop()
        done.append(last)
        for name, before in dependencies.items():
            if last in before:
                waits[name] -= 1
                if not waits[name]:
                    free.append(name)
    return done if len(done) == len(dependencies) else None


TEXT, WHOLE, QUANTITY, ANYTHING = "text", "whole", "quantity", "anything"
"""Types of a leaf."""
AMOUNTS = {"*": QUANTITY}
_TOPOLOGY = {"highestTierAllowed": WHOLE, "highestTierName": TEXT}
_POLICIES = [{"action": TEXT, "event": TEXT, "events": [TEXT], "exitCode": WHOLE}]
_RESOURCES = {"requests": AMOUNTS, "limits": AMOUNTS}
_CONTAINERS = [{"resources": _RESOURCES}]
_POD = {"spec": {"containers": _CONTAINERS, "initContainers": _CONTAINERS, "resources": _RESOURCES}}
_TASK = {
    "name": TEXT,
    "replicas": WHOLE,
    "minAvailable": WHOLE,
    "policies": _POLICIES,
    "template": _POD,
    "topologyPolicy": TEXT,
    "dependsOn": {"name": [TEXT]},
    "partitionPolicy": {
        **dict.fromkeys(("totalPartitions", "partitionSize", "minPartitions"), WHOLE),
        "networkTopology": _TOPOLOGY,
    },
}
_META = {"name": TEXT, "annotations": {"*": TEXT}}
JOB = {
    "metadata": _META,
    "spec": {
        "minAvailable": WHOLE,
        "queue": TEXT,
        "tasks": [_TASK],
        "policies": _POLICIES,
        "plugins": {"*": ANYTHING},
        "volumes": [{"mountPath": TEXT, "volumeClaimName": TEXT, "volumeClaim": {}}],
        "networkTopology": _TOPOLOGY,
    },
}
QUEUE_SHAPE = {
    "metadata": _META,
    "spec": {
        "parent": TEXT,
        "capability": AMOUNTS,
        "deserved": AMOUNTS,
        "guarantee": {"resource": AMOUNTS},
    },
    "status": {"state": TEXT, "allocated": AMOUNTS},
}
GROUP = {
    "metadata": _META,
    "spec": {
        "queue": TEXT,
        "networkTopology": _TOPOLOGY,
        "subGroupPolicy": [{"name": TEXT, "networkTopology": _TOPOLOGY}],
    },
}
HYPER_NODE = {
    "metadata": _META,
    "spec": {"members": [{"selector": {"regexMatch": {"pattern": TEXT}}}]},
}
JOB_FLOW = {"spec": {"flows": [{"name": TEXT, "dependsOn": {"targets": [TEXT]}}]}}
CRON_JOB = {"metadata": _META, "spec": {"schedule": TEXT, "timeZone": TEXT}}
POD = {"metadata": _META, "spec": {"schedulerName": TEXT}}
_LARGEST = 10**18


def fits(value: Any, shape: Any) -> bool:
    """True if a value decodes into its type; an absent value always does. `*` matches any key of a map."""
    if value is None or shape == ANYTHING:
        return True
    match shape:
        case dict():
            if not isinstance(value, dict):
                return False
            each = shape.get("*")
            if each == QUANTITY and None in value.values():
                return False
            return all(fits(part, shape.get(key, each or ANYTHING)) for key, part in value.items())
        case list():
            return isinstance(value, list) and all(part is not None and fits(part, shape[0]) for part in value)
        case "text":
            return isinstance(value, str)
        case "whole":
            return isinstance(value, int) and not isinstance(value, bool) and abs(value) < _LARGEST
        case _:
            return _is_quantity(value)


def _is_quantity(value: Any) -> bool:
    try:
        parse_quantity(value)
    except (ValueError, TypeError):
        return False
    return isinstance(value, (str, int, float))


BOTH = "must not specify 'highestTierAllowed' and 'highestTierName' in networkTopology simultaneously"


def names_both(place: Any) -> bool:
    """True if `networkTopology` sets the highest tier by number and by name."""
    asked = at(place, "networkTopology")
    return at(asked, "highestTierAllowed") is not None and bool(at(asked, "highestTierName"))
