"""The Active condition of a ClusterQueue, with Kueue's messages, and lookups of the queues that use an object.

Kueue 0.19 pkg/cache/scheduler/clusterqueue.go: updateQueueStatus, inactiveReason, updateWithAdmissionChecks.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from msgspec import Struct

from gpuconsole.model.queues import AdmissionCheck, CheckRule, ClusterQueue, ResourceFlavor, StopPolicy, Topology
from gpuconsole.model.snapshot import EVERYTHING, Visibility

MULTIKUEUE = "kueue.x-k8s.io/multikueue"
PROVISIONING = "kueue.x-k8s.io/provisioning-request"
LONGEST_MESSAGE = 32 * 1024


class ReferencedObjects(Protocol):
    """The objects that a ClusterQueue may refer to, by name."""

    @property
    def flavors(self) -> Mapping[str, ResourceFlavor]: ...

    @property
    def admission_checks(self) -> Mapping[str, AdmissionCheck]: ...

    @property
    def topologies(self) -> Mapping[str, Topology]: ...


class ActiveCondition(Struct, frozen=True):
    """The Active condition of a ClusterQueue."""

    active: bool
    reason: str
    message: str


READY = ActiveCondition(True, "Ready", "Can admit new workloads")
TERMINATING = ActiveCondition(False, "Terminating", "Can't admit new workloads; clusterQueue is terminating")
NOT_FOUND = ActiveCondition(False, "NotFound", "ClusterQueue not found")

_Obstacle = tuple[str, str]
"""Reason and the part of the message that it adds."""


def active_condition(
    queue: ClusterQueue | None, known: ReferencedObjects, *, topologies: bool = True, seen: Visibility = EVERYTHING
) -> ActiveCondition:
    """Return the Active condition of a ClusterQueue: every obstacle in the message, the first one as reason.

    `topologies` is the gate TopologyAwareScheduling. A cycle of its cohorts is not part of the condition. A missing
    object of a kind that is only partly visible counts as present.
    """
    if queue is None:
        return NOT_FOUND
    if queue.terminating:
        return TERMINATING
    obstacles = [*_stopped(queue), *_flavors(queue, known, seen), *_checks(queue, known, seen)]
    if topologies and seen.all_of(Topology) and (obstacles or not _runs_elsewhere(queue, known)):
        obstacles += _topologies(queue, known)
    if not obstacles:
        return READY
    message = f"Can't admit new workloads: {', '.join(part for _, part in obstacles)}."
    return ActiveCondition(False, obstacles[0][0], _truncated(message))


def _stopped(queue: ClusterQueue) -> Iterator[_Obstacle]:
    if queue.stop_policy is not StopPolicy.NONE:
        yield "Stopped", "is stopped"


def _flavors(queue: ClusterQueue, known: ReferencedObjects, seen: Visibility) -> Iterator[_Obstacle]:
    missing = [name for name in queue.flavors if name not in known.flavors]
    if missing and seen.all_of(ResourceFlavor):
        yield "FlavorNotFound", f"references missing ResourceFlavor(s): {','.join(missing)}"


def _checks(queue: ClusterQueue, known: ReferencedObjects, seen: Visibility) -> Iterator[_Obstacle]:
    rules = {rule.name: rule for rule in queue.checks}
    found = {name: known.admission_checks[name] for name in sorted(rules) if name in known.admission_checks}
    missing = [name for name in sorted(rules) if name not in found]
    inactive = [name for name, check in found.items() if not check.active]
    remote = [name for name, check in found.items() if check.controller == MULTIKUEUE]
    per_flavor = [name for name in remote if not _for_all_flavors(rules[name], queue)]
    provisioning = [name for name, check in found.items() if check.controller == PROVISIONING]
    if missing and seen.all_of(AdmissionCheck):
        yield "AdmissionCheckNotFound", f"references missing AdmissionCheck(s): {','.join(missing)}"
    if inactive:
        yield "AdmissionCheckInactive", f"references inactive AdmissionCheck(s): {','.join(inactive)}"
    if len(remote) > 1:
        yield (
            "MultipleMultiKueueAdmissionChecks",
            f"Cannot use multiple MultiKueue AdmissionChecks on the same ClusterQueue, found: {','.join(remote)}",
        )
    if per_flavor:
        yield (
            "MultiKueueAdmissionCheckAppliedPerFlavor",
            f"Cannot specify MultiKueue AdmissionCheck per flavor, found: {','.join(per_flavor)}",
        )
    if remote and provisioning:
        yield (
            "MultiKueueWithProvisioningRequest",
            "Cannot use both MultiKueue and ProvisioningRequest AdmissionChecks together, "
            f"found: {','.join(remote)}, {','.join(provisioning)}",
        )


def _for_all_flavors(rule: CheckRule, queue: ClusterQueue) -> bool:
    return not rule.on_flavors or set(rule.on_flavors) == set(queue.flavors)


def _runs_elsewhere(queue: ClusterQueue, known: ReferencedObjects) -> bool:
    """True with a MultiKueue check: then the worker clusters' topologies apply."""
    checks = (known.admission_checks.get(rule.name) for rule in queue.checks)
    return any(check is not None and check.controller == MULTIKUEUE for check in checks)


def _topologies(queue: ClusterQueue, known: ReferencedObjects) -> Iterator[_Obstacle]:
    for name in queue.flavors:
        flavor = known.flavors.get(name)
        if flavor is not None and flavor.topology and flavor.topology not in known.topologies:
            yield "TopologyNotFound", f'there is no Topology "{flavor.topology}" for TAS flavor "{name}"'


def _truncated(message: str) -> str:
    return message if len(message) <= LONGEST_MESSAGE else message[: LONGEST_MESSAGE - 4] + " ..."


def using_flavor(queues: Iterable[ClusterQueue], flavor: str) -> list[str]:
    """Names of the ClusterQueues that have quota of a flavor."""
    return [queue.name for queue in queues if flavor in queue.flavors]


def using_check(queues: Iterable[ClusterQueue], check: str) -> list[str]:
    """Names of the ClusterQueues that require an admission check."""
    return [queue.name for queue in queues if any(rule.name == check for rule in queue.checks)]


def using_topology(queues: Iterable[ClusterQueue], flavors: Iterable[ResourceFlavor], topology: str) -> list[str]:
    """Names of the ClusterQueues with a flavor that uses a topology."""
    placed = {flavor.name for flavor in flavors if flavor.topology == topology}
    return [queue.name for queue in queues if not placed.isdisjoint(queue.flavors)]
