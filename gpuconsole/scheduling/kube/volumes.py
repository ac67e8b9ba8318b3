"""Volumes and devices that pods claim: the volume filters, and what one pass assumes for pods that it placed.

VolumeBinding (`prefilter_rejection`, `plan_volumes`) finds the nodes that reach a pod's volumes, and the volumes that
its claims would get there; VolumeZone, NodeVolumeLimits and VolumeRestrictions follow. `Storage` has the storage
objects, and `ClaimsAndVolumes` these and the DRA objects, with what is assumed.

The rules are those of Kubernetes 1.35 (plugins/volumebinding, volumezone, nodevolumelimits, volumerestrictions);
Volcano 1.15 has a copy of the first three. Not simulated: capacity that CSI drivers publish (CSIStorageCapacity), and
inline volumes of pods.
"""

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from gpuconsole.model.cluster import (
    AVAILABLE,
    LOST,
    ONE_POD,
    RELEASED,
    CSINode,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    StorageClass,
)
from gpuconsole.model.devices import Allocation, DeviceClass, ResourceClaim, ResourceSlice
from gpuconsole.model.labels import Requirement
from gpuconsole.model.objects import Object
from gpuconsole.model.pod_template import PodVolume
from gpuconsole.scheduling.devices import allocator
from gpuconsole.scheduling.devices.allocator import DraInventory
from gpuconsole.scheduling.kube.filters import matches_term

VolumePlace = tuple[str, str]
"""(label, value) that a node must have to use a volume; two empty strings mean any node."""
ANY_NODE: VolumePlace = ("", "")


class Volumes(Struct, frozen=True):
    """Index of volumes, by the claim that may use them or by class and location."""

    by_claim: dict[str, list[PersistentVolume]]
    """Claim → the volumes that name this claim, in the order of their names."""
    unclaimed: dict[str, dict[VolumePlace, list[PersistentVolume]]]
    """Class → location → the volumes that name no claim, the smallest first, then by name."""
    labels: set[str]
    """Labels of all places in `unclaimed`."""


class Storage(Struct, kw_only=True):
    """Storage objects, and volumes assumed for the claims of placed pods. Mutates by `assume` and `forget_assumed`."""

    claims: Mapping[str, PersistentVolumeClaim] = field(default_factory=dict)
    volumes: Mapping[str, PersistentVolume] = field(default_factory=dict)
    classes: Mapping[str, StorageClass] = field(default_factory=dict)
    limits: Mapping[str, CSINode] = field(default_factory=dict)
    assumed_volumes: dict[str, str] = field(default_factory=dict)
    """Volume → claim that is assumed to be bound to it."""
    assumed_nodes: dict[str, str] = field(default_factory=dict)
    """Claim → node for which a volume is assumed to be provisioned."""
    _index: Volumes | None = None

    def class_of(self, claim: PersistentVolumeClaim) -> str:
        """The storage class that the claim names, else the newest default class; empty if neither exists."""
        if claim.storage_class is not None:
            return claim.storage_class
        defaults = sorted(
            (known for known in self.classes.values() if known.default), key=lambda known: (-known.created, known.name)
        )
        return defaults[0].name if defaults else ""

    def node_of(self, claim: PersistentVolumeClaim) -> str:
        """The node for which the claim's volume is being provisioned; empty if none."""
        return self.assumed_nodes.get(claim.key) or claim.selected_node

    def owner_of(self, volume: PersistentVolume) -> str:
        """The claim that the volume is assumed for, else that it names; empty if none."""
        return self.assumed_volumes.get(volume.name) or volume.claim

    def reserved_for(self, claim: str) -> Iterator[PersistentVolume]:
        """Volumes that name the claim or are assumed for it."""
        for kept in self._volume_index().by_claim.get(claim, ()):
            if self.owner_of(kept) == claim:
                yield kept
        for name, owner in self.assumed_volumes.items():
            volume = self.volumes.get(name)
            if volume is not None and owner == claim != volume.claim:
                yield volume

    def unclaimed_of(self, storage_class: str, node: Node | None) -> Iterator[PersistentVolume]:
        """Unreserved volumes of a class, the smallest first.

        With a node, volumes whose first label excludes it are left out; callers check the rest with
        `is_reachable_from`.
        """
        known = self._volume_index()
        shelves = known.unclaimed.get(storage_class, {})
        if node is not None:
            here = [(label, node.labels[label]) for label in known.labels if label in node.labels]
            shelves = {place: shelves[place] for place in (ANY_NODE, *here) if place in shelves}
        found = heapq.merge(*shelves.values(), key=lambda volume: (volume.storage, volume.name))
        return (volume for volume in found if not self.owner_of(volume))

    def _volume_index(self) -> Volumes:
        if self._index is None:
            self._index = Volumes({}, {}, set())
            for volume in sorted(self.volumes.values(), key=lambda volume: (volume.storage, volume.name)):
                if not volume.claim and volume.phase == AVAILABLE:
                    shelves = self._index.unclaimed.setdefault(volume.storage_class, {})
                    for place in volume_places(volume):
                        shelves.setdefault(place, []).append(volume)
                        self._index.labels.add(place[0])
            for _, volume in sorted(self.volumes.items()):
                if volume.claim and volume.phase != RELEASED:
                    self._index.by_claim.setdefault(volume.claim, []).append(volume)
        return self._index

    def assume(self, plan: "VolumeBindingPlan") -> None:
        """Assume the volumes of a pod's claims."""
        self.assumed_volumes.update({volume: claim for claim, volume in plan.bindings})
        self.assumed_nodes.update(dict.fromkeys(plan.provisions, plan.node))

    def forget_assumed(self, plan: "VolumeBindingPlan") -> None:
        """Undo `assume`."""
        for _, volume in plan.bindings:
            self.assumed_volumes.pop(volume, None)
        for claim in plan.provisions:
            self.assumed_nodes.pop(claim, None)


def volume_places(volume: PersistentVolume) -> tuple[VolumePlace, ...]:
    """Return the places that index a volume: no node outside of all of them can use it.

    These are the values of the first label with operator In in its node affinity. The result is ANYWHERE if there is
    none, or if the affinity has several terms.
    """
    terms = volume.node_affinity
    asked = terms[0].expressions if terms is not None and len(terms) == 1 else ()
    one = next((one for one in asked if one.operator == "In"), None)
    return (ANY_NODE,) if one is None else tuple((one.key, value) for value in dict.fromkeys(one.values))


class VolumeBindingPlan(Struct, frozen=True):
    """Volumes that a pod's claims would get on a node, or why they cannot."""

    node: str
    bindings: tuple[tuple[str, str], ...] = ()
    """(claim, existing volume)."""
    provisions: tuple[str, ...] = ()
    """Claims for which a volume would be provisioned."""
    reasons: tuple[str, ...] = ()

    @property
    def needs_binding(self) -> bool:
        """True if a volume has to be bound or provisioned before the pod is bound."""
        return bool(self.bindings or self.provisions)

    @property
    def volumes(self) -> tuple[tuple[str, str], ...]:
        """(claim, volume) of each claim; no volume where one has to be provisioned."""
        return (*self.bindings, *((claim, "") for claim in self.provisions))


def claim_name(pod: Pod, volume: PodVolume) -> str:
    """The name of the claim that a pod's volume names, or that is created for an ephemeral volume."""
    return volume.claim or f"{pod.name}-{volume.name}"


def claim_keys(pod: Pod) -> tuple[str, ...]:
    """`namespace/name` of the claim of each volume of the pod, in its order."""
    return tuple(f"{pod.namespace}/{claim_name(pod, volume)}" for volume in pod.template.volumes)


def is_bound(claim: PersistentVolumeClaim) -> bool:
    """True if claim and volume refer to each other."""
    return bool(claim.volume) and claim.bound


UNBOUND = "pod has unbound immediate PersistentVolumeClaims"
NO_VOLUMES = "node(s) didn't find available persistent volumes to bind"
VOLUME_NODE_AFFINITY = "node(s) didn't match PersistentVolume's node affinity"
VOLUME_GONE = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
CHECK_ORDER = (VOLUME_NODE_AFFINITY, NO_VOLUMES, VOLUME_GONE)


def prefilter_rejection(pod: Pod, storage: Storage) -> str:
    """Why VolumeBinding rejects the pod for all nodes: a claim is missing, lost, terminating or unbound; else empty."""
    claims = []
    for volume in pod.template.volumes:
        name = claim_name(pod, volume)
        claim = storage.claims.get(f"{pod.namespace}/{name}")
        if claim is None and not volume.claim:
            return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
        if claim is None:
            return f'persistentvolumeclaim "{name}" not found'
        if claim.phase == LOST:
            return f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{claim.volume}"'
        if claim.deleted:
            return f'persistentvolumeclaim "{name}" is being deleted'
        claims.append(claim)
    for claim in claims:
        if not is_bound(claim):
            storage_class = storage.class_of(claim)
            if storage_class and storage_class not in storage.classes:
                return f'storageclass.storage.k8s.io "{storage_class}" not found'
            if not storage_class or not storage.classes[storage_class].waits or claim.volume:
                return UNBOUND
    return ""


def plan_volumes(pod: Pod, node: Node, storage: Storage) -> VolumeBindingPlan:
    """Volumes that the pod's claims would get on the node (FindPodVolumes), if `prefilter_rejection` is empty."""
    claims = [storage.claims[key] for key in claim_keys(pod)]
    elsewhere = (_bound_volume_refusal(claim, node, storage) for claim in claims if is_bound(claim))
    reasons = [text for text in (next(filter(None, elsewhere), ""),) if text]
    waiting = [claim for claim in claims if not is_bound(claim)]
    found = _find_volumes(waiting, node, storage) if waiting else VolumeBindingPlan(node.name)
    if found is None:
        reasons.append(NO_VOLUMES)
    if found is None or reasons:
        # Volcano and kube-scheduler name volumes bound elsewhere first, and missing volumes last.
        return VolumeBindingPlan(node.name, reasons=tuple(sorted(reasons, key=CHECK_ORDER.index)))
    return found


def _bound_volume_refusal(claim: PersistentVolumeClaim, node: Node, storage: Storage) -> str:
    volume = storage.volumes.get(claim.volume)
    if volume is None:
        return VOLUME_GONE
    return "" if is_reachable_from(volume, node) else VOLUME_NODE_AFFINITY


def is_reachable_from(volume: PersistentVolume, node: Node) -> bool:
    """True if pods on the node can use the volume."""
    return volume.node_affinity is None or any(matches_term(term, node) for term in volume.node_affinity)


def _find_volumes(claims: Sequence[PersistentVolumeClaim], node: Node, storage: Storage) -> VolumeBindingPlan | None:
    """Match existing volumes, the smallest claim first, and provision the rest."""
    if any(storage.node_of(claim) not in ("", node.name) for claim in claims):
        return None
    taken: set[str] = set()
    bindings, provisions = [], []
    for claim in sorted(claims, key=lambda claim: claim.storage):
        volume = None if storage.node_of(claim) else match_volume(claim, node, storage, taken)
        if volume is not None:
            taken.add(volume.name)
            bindings.append((claim.key, volume.name))
        elif _can_provision(claim, node, storage):
            provisions.append(claim.key)
        else:
            return None
    return VolumeBindingPlan(node.name, tuple(bindings), tuple(provisions))


def match_volume(
    claim: PersistentVolumeClaim, node: Node | None, storage: Storage, taken: Iterable[str] = ()
) -> PersistentVolume | None:
    """The volume reserved for the claim, without one the smallest that matches it (FindMatchingVolume).

    None if none matches, or if the reserved one cannot be used on the node. Without a node, volumes count wherever they
    are.
    """
    for volume in storage.reserved_for(claim.key):
        if volume.name not in taken and not volume.deleted and _is_large_enough(volume, claim):
            return volume if node is None or is_reachable_from(volume, node) else None
    for volume in storage.unclaimed_of(storage.class_of(claim), node):
        if (
            volume.name in taken
            or volume.deleted
            or not _is_large_enough(volume, claim)
            or not _matches_claim(volume, claim)
        ):
            continue
        if node is None or is_reachable_from(volume, node):
            return volume
    return None


def _is_large_enough(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    return volume.storage >= claim.storage and volume.mode == claim.mode


def _matches_claim(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    chosen = claim.selector is None or claim.selector.matches(volume.labels)
    return chosen and set(claim.access_modes) <= set(volume.access_modes)


def _can_provision(claim: PersistentVolumeClaim, node: Node, storage: Storage) -> bool:
    storage_class = storage.classes.get(storage.class_of(claim))
    return (
        storage_class is not None and storage_class.provisions and is_topology_allowed(storage_class.topologies, node)
    )


def is_topology_allowed(topologies: Sequence[Sequence[Requirement]], node: Node) -> bool:
    """True if a class with these allowedTopologies can provision a volume for the node; none means anywhere."""
    return not topologies or any(all(one.matches(node.labels) for one in term) for term in topologies)


OTHER_ZONE = "node(s) had no available volume zone"
TOO_MANY = "node(s) exceed max volume count"
IN_USE = "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"
ZONES: Mapping[str, str] = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region": "topology.kubernetes.io/region",
}
"""Topology labels of volumes → their current names on nodes (translateToGALabel)."""


def zone_prefilter_rejection(pod: Pod, storage: Storage) -> str:
    """Why VolumeZone rejects the pod for all nodes: an unbound claim or a missing object; empty if it does not.

    Unbound claims of a WaitForFirstConsumer class are skipped.
    """
    for key in claim_keys(pod):
        claim = storage.claims.get(key)
        if claim is None:
            return f'persistentvolumeclaim "{key.partition("/")[2]}" not found'
        storage_class = storage.class_of(claim)
        if claim.volume:
            if claim.volume not in storage.volumes:
                return f'persistentvolume "{claim.volume}" not found'
        elif not storage_class:
            return "PersistentVolumeClaim had no pv name and storageClass name"
        elif storage_class not in storage.classes:
            return f'storageclass.storage.k8s.io "{storage_class}" not found'
        elif not storage.classes[storage_class].waits:
            return "PersistentVolume had no name"
    return ""


def zone_refusal(pod: Pod, node: Node, storage: Storage) -> str:
    """Why VolumeZone rejects the node: the labels of a bound volume exclude it; empty if none do."""
    if not any(key in node.labels for key in ZONES):
        return ""
    for key in claim_keys(pod):
        claim = storage.claims.get(key)
        volume = storage.volumes.get(claim.volume) if claim is not None and claim.volume else None
        for label, places in volume.labels.items() if volume is not None else ():
            if label in ZONES:
                here = node.labels.get(label, node.labels.get(ZONES[label]))
                if here not in places.split("__"):
                    return OTHER_ZONE
    return ""


def volume_limit_refusal(pod: Pod, node: Node, others: Iterable[Pod], storage: Storage) -> str:
    """Why NodeVolumeLimits rejects the node: a driver cannot attach the pod's volumes; empty if it can.

    A volume that several pods use counts once.
    """
    limits = storage.limits.get(node.name)
    if limits is None or not limits.limits:
        return ""
    wanted = dict(_attached_volumes(pod, storage))
    there = dict(pair for other in others for pair in _attached_volumes(other, storage))
    for driver in sorted(set(wanted.values())):
        new = sum(1 for handle, of in wanted.items() if of == driver and handle not in there)
        old = sum(1 for of in there.values() if of == driver)
        if new and driver in limits.limits and old + new > limits.limits[driver]:
            return TOO_MANY
    return ""


def _attached_volumes(pod: Pod, storage: Storage) -> Iterator[tuple[str, str]]:
    """(volume, driver) of each claim of the pod; a claim without a volume counts separately."""
    for key in claim_keys(pod):
        claim = storage.claims.get(key)
        if claim is None:
            continue
        volume = storage.volumes.get(claim.volume)
        if volume is not None and volume.driver:
            yield f"{volume.driver}/{volume.handle or volume.name}", volume.driver
        elif volume is None:
            storage_class = storage.classes.get(storage.class_of(claim))
            if storage_class is not None and storage_class.provisions:
                yield f"{storage_class.provisioner}/{key}", storage_class.provisioner


def read_write_once_pod_refusal(pod: Pod, others: Iterable[Pod], storage: Storage) -> str:
    """Why VolumeRestrictions rejects the node: another pod uses the pod's ReadWriteOncePod claim; else empty."""
    single = {key for key in claim_keys(pod) if key in storage.claims and ONE_POD in storage.claims[key].access_modes}
    taken = single and any(single.intersection(claim_keys(other)) for other in others if other.key != pod.key)
    return IN_USE if taken else ""


AssumedClaimsState = tuple[dict[str, str], dict[str, str], dict[str, Allocation], dict[str, set[str]]]
"""The assumed claims: `Storage.assumed_volumes` and `assumed_nodes`, `DraInventory.assumed` and `users`."""


class AssumedClaims(Struct, frozen=True):
    """Volumes and devices that a pod's claims get on its node."""

    volumes: tuple[tuple[str, str], ...] = ()
    """(claim, volume); the volume is empty if one has to be provisioned."""
    devices: tuple[tuple[str, Allocation], ...] = ()


NO_ASSUMED_CLAIMS = AssumedClaims()


class ClaimsAndVolumes:
    """Storage and DRA objects, and what a pass assumes for the claims of placed pods. Mutates."""

    TABLES = (
        *("storage_classes", "csi_nodes", "persistent_volumes", "persistent_volume_claims"),
        *("device_classes", "resource_slices", "resource_claims"),
    )

    def __init__(self) -> None:
        self._tables: dict[str, dict[str, Any]] = {table: {} for table in self.TABLES}
        self.begin_pass()

    def fork(self) -> "ClaimsAndVolumes":
        """An independent copy."""
        copied = ClaimsAndVolumes()
        copied._tables = {name: table.copy() for name, table in self._tables.items()}
        copied.begin_pass()
        return copied

    def begin_pass(self) -> None:
        """Begin a pass: drop earlier assumptions, which the objects contain by now."""
        tables = self._tables
        self.storage = Storage(
            claims=tables["persistent_volume_claims"],
            volumes=tables["persistent_volumes"],
            classes=tables["storage_classes"],
            limits=tables["csi_nodes"],
        )
        self.devices = DraInventory(
            classes=tables["device_classes"], slices=tables["resource_slices"], claims=tables["resource_claims"]
        )

    def apply_object(self, obj: Object) -> bool:
        """Apply an object that appeared or changed; False if its kind does not belong here."""
        table = _table(obj)
        if table:
            self._tables[table][obj.key] = obj
            self.begin_pass()
        return bool(table)

    def delete_object(self, table: str, key: str) -> bool:
        """Apply the deletion of an object; False if it was not known here."""
        if table in self._tables and self._tables[table].pop(key, None) is not None:
            self.begin_pass()
            return True
        return False

    def assume(self, pod: Pod, node: Node) -> AssumedClaims:
        """Assume, and return, the volumes and devices that the pod's claims get on the node."""
        if not pod.template.volumes and not pod.template.resource_claims:
            return NO_ASSUMED_CLAIMS
        binding = plan_volumes(pod, node, self.storage)
        grant = allocator.allocate_claims(pod, node, self.devices)
        self.storage.assume(binding)
        self.devices.assume(pod.key, grant.allocations, grant.shared)
        return AssumedClaims(binding.volumes, tuple(sorted(grant.allocations.items())))

    def assumed(self) -> AssumedClaimsState:
        """A copy of all assumed claims, which `restore_assumed` restores after a trial."""
        users = {key: set(pods) for key, pods in self.devices.users.items()}
        return (
            self.storage.assumed_volumes.copy(),
            self.storage.assumed_nodes.copy(),
            self.devices.assumed.copy(),
            users,
        )

    def restore_assumed(self, assumed: AssumedClaimsState) -> None:
        """Restore the assumed claims that `assumed` returned."""
        self.storage.assumed_volumes, self.storage.assumed_nodes, self.devices.assumed, self.devices.users = assumed


def _table(obj: Object) -> str:
    match obj:
        case StorageClass():
            return "storage_classes"
        case CSINode():
            return "csi_nodes"
        case PersistentVolume():
            return "persistent_volumes"
        case PersistentVolumeClaim():
            return "persistent_volume_claims"
        case DeviceClass():
            return "device_classes"
        case ResourceSlice():
            return "resource_slices"
        case ResourceClaim():
            return "resource_claims"
        case _:
            return ""
