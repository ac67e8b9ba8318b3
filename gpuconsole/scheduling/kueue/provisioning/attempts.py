"""Names of requests and of their templates: each attempt of a check has its own (Kueue 0.19 provisioning.go)."""

import re
from hashlib import sha1

from gpuconsole.model.autoscaling import ProvisioningRequest

_LONGEST = 247
"""Names have up to 253 characters; 6 are reserved for a dash and five characters of a hash."""


def request_name(workload: str, check: str, attempt: int) -> str:
    """Name of the request of an attempt, from the workload's name without its namespace; attempts count from 1."""
    return _limited(f"{workload}-{check}-{attempt}")


def template_name(request: str, pod_set: str) -> str:
    """Name of the stored template of a pod set that a request asks for."""
    return _limited(f"ppt-{request}-{pod_set}")


def attempt_of(request: ProvisioningRequest, workload: str, check: str) -> int | None:
    """Return the attempt number in a request's name; None if it belongs to another workload or check."""
    prefix = re.escape(_limited(f"{workload}-{check}-"))
    found = re.fullmatch(f"{prefix}([0-9]+)", request.name)
    return int(found[1]) if found else None


def _limited(name: str) -> str:
    if len(name) <= _LONGEST:
        return name
    # Not for security: the hash keeps truncated names distinct, and equal to Kueue's.
    return f"{name[:_LONGEST]}-{sha1(name.encode(), usedforsecurity=False).hexdigest()[:5]}"
