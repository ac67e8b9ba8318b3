"""DRA requests of tasks, read from their ResourceClaims, for quotas that count devices."""

from collections.abc import Mapping

from gpuconsole.model.cluster import Pod
from gpuconsole.model.devices import EXACT_COUNT, ResourceClaim
from gpuconsole.model.pod_template import PodClaim
from gpuconsole.scheduling.volcano.api.dra import DraResource
from gpuconsole.scheduling.volcano.api.task import TaskInfo


class ResourceClaimMissing(Exception):
    """A claim that a pod names does not exist (yet)."""


def set_claims(task: TaskInfo, claims: Mapping[str, ResourceClaim]) -> None:
    """Set a task's DRA requests (buildTaskDRAInfo); they stay empty while one of its claims is missing."""
    try:
        by_claim = claimed(task.pod, claims)
    except ResourceClaimMissing:
        return
    task.dra, task.claim_dra, task.claim_keys = total(by_claim), by_claim, tuple(sorted(by_claim))


def claimed(pod: Pod, claims: Mapping[str, ResourceClaim]) -> dict[str, dict[str, DraResource]]:
    """Claimed devices by claim (`namespace/name`) and device class.

    Requests with alternatives or for all devices do not count. The capacity that a request names is multiplied by its
    count.

    Raises:
        ResourceClaimMissing: a claim that the pod names does not exist.
    """
    found: dict[str, dict[str, DraResource]] = {}
    for named in pod.template.resource_claims:
        key = f"{pod.namespace}/{_name(pod, named)}"
        claim = claims.get(key)
        if claim is None:
            raise ResourceClaimMissing(key)
        asked: dict[str, DraResource] = {}
        for request in claim.requests:
            if request.exactly and request.mode == EXACT_COUNT and request.device_class:
                count = request.count or 1
                amounts = {name: amount * count for name, amount in request.capacity.items()}
                asked.setdefault(request.device_class, DraResource()).add(DraResource(count, amounts))
        if asked:
            found[key] = asked
    return found


def total(by_claim: Mapping[str, Mapping[str, DraResource]]) -> dict[str, DraResource]:
    """Sum over all claims, by device class."""
    result: dict[str, DraResource] = {}
    for asked in by_claim.values():
        for device_class, devices in asked.items():
            result.setdefault(device_class, DraResource()).add(devices)
    return result


def _name(pod: Pod, named: PodClaim) -> str:
    """The name of the claim: as the pod says, or that of the claim created from a template."""
    return named.claim or f"{pod.name}-{named.name}"
