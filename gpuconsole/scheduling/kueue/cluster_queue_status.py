"""The compiled configuration: all that admission depends on except the workloads, and whether a ClusterQueue is active.

`active_condition` returns a ClusterQueue's Active condition with Kueue's messages. `CompiledConfig` compiles the
`ConfigObjects` once: (flavor, resource) pairs, queues and cohorts become indices of the quota tree. It is frozen and
shared by forks. `queues_using_flavor` and the like find the ClusterQueues that use an object. Kueue 0.19
pkg/cache/scheduler/clusterqueue.go: updateQueueStatus, inactiveReason, updateWithAdmissionChecks.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from copy import copy
from typing import Protocol

from msgspec import Struct

from gpuconsole.model.cluster import LimitRange, Namespace, Node, RuntimeClass
from gpuconsole.model.devices import DeviceClass, ResourceClaimTemplate, ResourceSlice
from gpuconsole.model.labels import NO_LABELS
from gpuconsole.model.queues import (
    AdmissionCheck,
    CheckRule,
    ClusterQueue,
    Cohort,
    LocalQueue,
    PreemptionPolicy,
    ResourceFlavor,
    StopPolicy,
    Topology,
)
from gpuconsole.model.resources import PODS
from gpuconsole.model.snapshot import EVERYTHING, Visibility
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.dra.claims import DeviceCatalogue
from gpuconsole.scheduling.kueue.pod_resources import NO_LIMITS, Limits, combine_limit_ranges
from gpuconsole.scheduling.kueue.quota_tree import Column, QuotaTree
from gpuconsole.scheduling.kueue.topology.domains import TopologyDomainTree, build_domains

MULTIKUEUE = "kueue.x-k8s.io/multikueue"
PROVISIONING = "kueue.x-k8s.io/provisioning-request"
"""spec.controllerName of admission checks that provision nodes; `MULTIKUEUE` is that of MultiKueue."""
MAX_MESSAGE_LENGTH = 32 * 1024
"""Maximum length of a condition's message."""


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
    obstacles = [*_stop_obstacles(queue), *_flavor_obstacles(queue, known, seen), *_check_obstacles(queue, known, seen)]
    if topologies and seen.all_of(Topology) and (obstacles or not _is_multikueue_queue(queue, known)):
        obstacles += _topology_obstacles(queue, known)
    if not obstacles:
        return READY
    message = f"Can't admit new workloads: {', '.join(part for _, part in obstacles)}."
    return ActiveCondition(False, obstacles[0][0], _truncated(message))


def _stop_obstacles(queue: ClusterQueue) -> Iterator[_Obstacle]:
    if queue.stop_policy is not StopPolicy.NONE:
        yield "Stopped", "is stopped"


def _flavor_obstacles(queue: ClusterQueue, known: ReferencedObjects, seen: Visibility) -> Iterator[_Obstacle]:
    missing = [name for name in queue.flavors if name not in known.flavors]
    if missing and seen.all_of(ResourceFlavor):
        yield "FlavorNotFound", f"references missing ResourceFlavor(s): {','.join(missing)}"


def _check_obstacles(queue: ClusterQueue, known: ReferencedObjects, seen: Visibility) -> Iterator[_Obstacle]:
    rules = {rule.name: rule for rule in queue.checks}
    found = {name: known.admission_checks[name] for name in sorted(rules) if name in known.admission_checks}
    missing = [name for name in sorted(rules) if name not in found]
    inactive = [name for name, check in found.items() if not check.active]
    remote = [name for name, check in found.items() if check.controller == MULTIKUEUE]
    per_flavor = [name for name in remote if not _applies_to_all_flavors(rules[name], queue)]
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


def _applies_to_all_flavors(rule: CheckRule, queue: ClusterQueue) -> bool:
    return not rule.on_flavors or set(rule.on_flavors) == set(queue.flavors)


def _is_multikueue_queue(queue: ClusterQueue, known: ReferencedObjects) -> bool:
    """True with a MultiKueue check: then the worker clusters' topologies apply."""
    checks = (known.admission_checks.get(rule.name) for rule in queue.checks)
    return any(check is not None and check.controller == MULTIKUEUE for check in checks)


def _topology_obstacles(queue: ClusterQueue, known: ReferencedObjects) -> Iterator[_Obstacle]:
    for name in queue.flavors:
        flavor = known.flavors.get(name)
        if flavor is not None and flavor.topology and flavor.topology not in known.topologies:
            yield "TopologyNotFound", f'there is no Topology "{flavor.topology}" for TAS flavor "{name}"'


def _truncated(message: str) -> str:
    return message if len(message) <= MAX_MESSAGE_LENGTH else message[: MAX_MESSAGE_LENGTH - 4] + " ..."


def queues_using_flavor(queues: Iterable[ClusterQueue], flavor: str) -> list[str]:
    """Names of the ClusterQueues that have quota of a flavor."""
    return [queue.name for queue in queues if flavor in queue.flavors]


def queues_using_check(queues: Iterable[ClusterQueue], check: str) -> list[str]:
    """Names of the ClusterQueues that require an admission check."""
    return [queue.name for queue in queues if any(rule.name == check for rule in queue.checks)]


def queues_using_topology(
    queues: Iterable[ClusterQueue], flavors: Iterable[ResourceFlavor], topology: str
) -> list[str]:
    """Names of the ClusterQueues with a flavor that uses a topology."""
    placed = {flavor.name for flavor in flavors if flavor.topology == topology}
    return [queue.name for queue in queues if not placed.isdisjoint(queue.flavors)]


class ConfigObjects(Struct):
    """The configuration objects of a session, by key, one mapping for each kind. Mutated by its owner only."""

    namespaces: dict[str, Namespace] = {}
    limit_ranges: dict[str, LimitRange] = {}
    runtime_classes: dict[str, RuntimeClass] = {}
    topologies: dict[str, Topology] = {}
    nodes: dict[str, Node] = {}
    device_classes: dict[str, DeviceClass] = {}
    resource_slices: dict[str, ResourceSlice] = {}
    resource_claim_templates: dict[str, ResourceClaimTemplate] = {}
    flavors: dict[str, ResourceFlavor] = {}
    admission_checks: dict[str, AdmissionCheck] = {}
    cohorts: dict[str, Cohort] = {}
    cluster_queues: dict[str, ClusterQueue] = {}
    local_queues: dict[str, LocalQueue] = {}

    def copy(self) -> "ConfigObjects":
        """Return a copy to which objects can be added without a change here."""
        return ConfigObjects(*(getattr(self, name).copy() for name in self.__struct_fields__))


class CompiledResourceGroup:
    """A resource group of a ClusterQueue, with the column of the quota tree for each flavor and resource."""

    __slots__ = ("columns", "flavors", "resources")

    def __init__(self, resources: Iterable[str], flavors: tuple[str, ...], numbers: Mapping[Column, int]) -> None:
        self.resources = frozenset(resources)
        self.flavors = flavors
        self.columns = [{resource: numbers[flavor, resource] for resource in self.resources} for flavor in flavors]
        """For each flavor: resource → column."""


class ClusterQueueConfig:
    """A ClusterQueue as the scheduler uses it: spec, active or not, node and columns in the quota tree."""

    __slots__ = (
        "active",
        "compares_age",
        "group_of",
        "groups",
        "multikueue",
        "name",
        "node",
        "nomination_key",
        "path_text",
        "provisioned",
        "queue",
        "tas_only",
        "within_cohort",
    )

    def __init__(
        self, queue: ClusterQueue, active: bool, tas_only: bool, tree: QuotaTree, checks: Mapping[str, AdmissionCheck]
    ) -> None:
        self.queue = queue
        self.name = queue.name
        self.active = active
        self.tas_only = tas_only
        """Every flavor of the queue has a topology, so all its workloads get topology assignments."""
        self.multikueue = any(_checks_of_controller(rule, checks) == MULTIKUEUE for rule in queue.checks)
        """Its workloads run in worker clusters, which assign their topologies."""
        self.provisioned = frozenset(
            flavor
            for rule in queue.checks
            if _checks_of_controller(rule, checks) == PROVISIONING
            for flavor in rule.on_flavors or [f.name for group in queue.resource_groups for f in group.flavors]
        )
        """Flavors whose nodes are provisioned by a ProvisioningRequest before admission."""
        self.node = tree.queues.get(queue.name, -1)
        self.groups = tuple(
            CompiledResourceGroup(group.covered_resources, tuple(flavor.name for flavor in group.flavors), tree.numbers)
            for group in queue.resource_groups
        )
        self.group_of = {resource: group for group in reversed(self.groups) for resource in group.resources}
        self.nomination_key: Hashable = _nomination_key(queue, tree, self.node)
        """Equal for sibling ClusterQueues that nominate equal workloads alike while their usage is equal."""
        preemption = queue.preemption
        self.compares_age = PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY in (
            preemption.within_cluster_queue,
            preemption.reclaim_within_cohort,
        )
        """True if the preemption candidates of its workloads also depend on their age."""
        path = tree.paths[self.node] if self.node >= 0 else ()
        self.within_cohort = bool(path)
        self.path_text = "".join(f"/{name}" for name in (*(tree.names[node] for node in reversed(path)), queue.name))

    @property
    def covers_pods(self) -> bool:
        """True if the queue has quota for the number of pods (resource `pods`)."""
        return PODS in self.group_of


def _nomination_key(queue: ClusterQueue, tree: QuotaTree, node: int) -> Hashable:
    if node < 0:
        return queue.name
    row = slice(node * tree.width, (node + 1) * tree.width)
    quotas = (tree.nominal, tree.local, tree.ceiling, tree.subtree, tree.potential)
    flavors = tuple(
        (tuple(group.covered_resources), tuple(f.name for f in group.flavors)) for group in queue.resource_groups
    )
    numbers = tuple(tuple(quota[row]) for quota in quotas)
    return tree.parent[node], numbers, flavors, queue.fungibility, queue.preemption


def _checks_of_controller(rule: CheckRule, checks: Mapping[str, AdmissionCheck]) -> str:
    check = checks.get(rule.name)
    return check.controller if check is not None else ""


class CompiledConfig:
    """All configuration that admission depends on, resolved for quick look-up. Frozen after construction."""

    __slots__ = (
        "devices",
        "flavors",
        "limits",
        "local_queue_targets",
        "max_flavors",
        "objects",
        "overheads",
        "queues",
        "topologies",
        "tree",
    )

    def __init__(self, objects: ConfigObjects, config: KueueConfig, columns: Iterable[Column] = ()) -> None:
        self.objects = objects
        self.flavors = objects.flavors
        covered = [
            (flavor.name, resource)
            for queue in objects.cluster_queues.values()
            for group in queue.resource_groups
            for flavor in group.flavors
            for resource in group.covered_resources
        ]
        self.tree = QuotaTree(objects.cluster_queues, objects.cohorts, [*columns, *covered])
        self.queues = {
            name: ClusterQueueConfig(
                queue, self._is_active(queue, config), self._is_tas_only(queue), self.tree, objects.admission_checks
            )
            for name, queue in objects.cluster_queues.items()
        }
        kinds: dict[Hashable, int] = {}
        for rules in self.queues.values():
            # Numbers are quicker to look up than all quotas of a queue.
            rules.nomination_key = kinds.setdefault(rules.nomination_key, len(kinds))
        self.local_queue_targets = {
            key: self._resolve_local_queue(self.cluster_queue_of(key)) for key in objects.local_queues
        }
        """LocalQueue → its ClusterQueue (empty if none), and whether that uses concurrent admission."""
        self.limits = combine_limit_ranges(objects.limit_ranges.values())
        """Namespace → its combined LimitRanges; namespaces without LimitRanges are absent."""
        self.overheads = {one.name: one.overhead for one in objects.runtime_classes.values() if one.overhead}
        """RuntimeClass → its overhead per pod, if it has any."""
        self.devices = _device_catalogue(objects, config)
        """Devices that resource claims can request, and the quota that they are charged to."""
        self.topologies = _configured_topologies(objects)
        """Flavor → its topology domains, if it has a topology."""
        self.max_flavors = max((len(g.flavors) for r in self.queues.values() for g in r.groups), default=0)
        """Number of flavors in the longest resource group."""

    def with_nodes(self, objects: ConfigObjects) -> "CompiledConfig":
        """Return the same configuration with other nodes; everything else must be unchanged."""
        copied = copy(self)
        copied.objects = objects
        copied.topologies = _configured_topologies(objects)
        return copied

    def with_devices(self, objects: ConfigObjects, config: KueueConfig) -> "CompiledConfig":
        """Return the same configuration with other device classes, claim templates and devices."""
        copied = copy(self)
        copied.objects = objects
        copied.devices = _device_catalogue(objects, config)
        return copied

    def limits_of(self, namespace: str) -> Limits:
        """Return the combined LimitRanges of a namespace."""
        return self.limits.get(namespace, NO_LIMITS)

    def cluster_queue_of(self, local_queue: str) -> str:
        """Return the ClusterQueue of an active LocalQueue; empty if there is none."""
        queue = self.objects.local_queues.get(local_queue)
        if queue is None or queue.stop_policy != StopPolicy.NONE or queue.cluster_queue not in self.queues:
            return ""
        return queue.cluster_queue

    def _resolve_local_queue(self, cluster_queue: str) -> tuple[str, bool]:
        """Return a ClusterQueue, and whether it uses concurrent admission."""
        rules = self.queues.get(cluster_queue)
        return cluster_queue, rules is not None and rules.queue.concurrent_admission is not None

    def matches_namespace(self, queue: ClusterQueue, namespace: str) -> bool:
        """True if the queue's namespace selector matches the namespace; an unknown namespace has no labels."""
        known = self.objects.namespaces.get(namespace)
        labels = known.labels if known is not None else NO_LABELS
        return queue.namespace_selector is not None and queue.namespace_selector.matches(labels)

    def _is_active(self, queue: ClusterQueue, config: KueueConfig) -> bool:
        """True if the queue can admit; one whose cohorts form a cycle cannot."""
        ready = active_condition(queue, self.objects, topologies=config.enabled("TopologyAwareScheduling"))
        return ready.active and queue.name in self.tree.queues

    def _is_tas_only(self, queue: ClusterQueue) -> bool:
        flavors = [self.flavors.get(flavor.name) for group in queue.resource_groups for flavor in group.flavors]
        return bool(flavors) and all(flavor is not None and flavor.topology for flavor in flavors)


def _configured_topologies(objects: ConfigObjects) -> dict[str, TopologyDomainTree]:
    return {
        flavor.name: build_domains(objects.topologies[flavor.topology], flavor, objects.nodes.values())
        for flavor in objects.flavors.values()
        if flavor.topology in objects.topologies
    }


def _device_catalogue(objects: ConfigObjects, config: KueueConfig) -> DeviceCatalogue:
    return DeviceCatalogue(
        config.device_class_mappings,
        objects.device_classes,
        objects.resource_claim_templates,
        objects.resource_slices.values(),
    )
