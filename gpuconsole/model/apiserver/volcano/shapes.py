"""Checks that a document decodes into Volcano's Go types, which comes before the webhooks."""

from typing import Any

from gpuconsole.model.quantity import parse_quantity

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
