"""What tasks claim of devices, read from their ResourceClaims, for quotas that count devices."""

from collections.abc import Mapping

from gpuconsole.model.devices import EXACT_COUNT, ResourceClaim
from gpuconsole.scheduling.volcano.api.dra import DeviceRequest
from gpuconsole.scheduling.volcano.api.task import TaskInfo


def set_claims(task: TaskInfo, claims: Mapping[str, ResourceClaim]) -> None:
    """Tell a task what it claims; claims that are not there yet count for nothing (buildTaskDRAInfo).

    Claims of alternatives or of all devices are not counted. An amount that a request asks for is asked of each of its
    devices.
    """
    by_claim: dict[str, dict[str, DeviceRequest]] = {}
    for named in task.pod.template.resource_claims:
        key = f"{task.namespace}/{named.claim or f'{task.name}-{named.name}'}"
        claim = claims.get(key)
        if claim is None or key in by_claim:
            continue
        asked: dict[str, DeviceRequest] = {}
        for request in claim.requests:
            if request.exactly and request.mode == EXACT_COUNT and request.device_class:
                count = request.count or 1
                amounts = {name: amount * count for name, amount in request.capacity.items()}
                asked.setdefault(request.device_class, DeviceRequest()).add(DeviceRequest(count, amounts))
        if asked:
            by_claim[key] = asked
    total: dict[str, DeviceRequest] = {}
    for asked in by_claim.values():
        for device_class, devices in asked.items():
            total.setdefault(device_class, DeviceRequest()).add(devices)
    task.dra, task.claim_dra, task.claim_keys = total, by_claim, tuple(sorted(by_claim))
