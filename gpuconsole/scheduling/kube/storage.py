"""Volumes and storage classes, volumes assumed for pods, and the claims of a pod."""

import heapq
from collections.abc import Iterator, Mapping

from msgspec import Struct, field

from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.pod_template import PodVolume
from gpuconsole.model.storage import AVAILABLE, RELEASED, CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass

Place = tuple[str, str]
"""(label, value) that a node must have; two empty strings are any node."""
ANYWHERE: Place = ("", "")


class Volumes(Struct, frozen=True):
    """Volumes by the claims that may use them, and by location."""

    kept: dict[str, list[PersistentVolume]]
    """Claim → the volumes that name it, by name."""
    free: dict[str, dict[Place, list[PersistentVolume]]]
    """Class → place → the volumes that name no claim, the smallest first, then by name."""
    labels: set[str]
    """Labels of all places in `free`."""


class Storage(Struct, kw_only=True):
    """Storage objects, which stay unchanged, and assumed volumes. Mutates by `hold`, `release`."""

    claims: Mapping[str, PersistentVolumeClaim] = field(default_factory=dict)
    volumes: Mapping[str, PersistentVolume] = field(default_factory=dict)
    classes: Mapping[str, StorageClass] = field(default_factory=dict)
    limits: Mapping[str, CSINode] = field(default_factory=dict)
    held: dict[str, str] = field(default_factory=dict)
    """Volume → claim that is assumed to be bound to it."""
    chosen: dict[str, str] = field(default_factory=dict)
    """Claim → node for which a volume is assumed to be provisioned."""
    _sorted: Volumes | None = None

    def class_of(self, claim: PersistentVolumeClaim) -> str:
        """The class that the claim names, else the newest default class; empty if neither exists."""
        if claim.storage_class is not None:
            return claim.storage_class
        defaults = sorted(
            (known for known in self.classes.values() if known.default), key=lambda known: (-known.created, known.name)
        )
        return defaults[0].name if defaults else ""

    def node_of(self, claim: PersistentVolumeClaim) -> str:
        """The node for which the claim's volume is being provisioned; empty if none."""
        return self.chosen.get(claim.key) or claim.selected_node

    def owner_of(self, volume: PersistentVolume) -> str:
        """The claim that the volume is assumed for or names; empty if none."""
        return self.held.get(volume.name) or volume.claim

    def kept_for(self, claim: str) -> Iterator[PersistentVolume]:
        """Volumes that name the claim or are assumed for it."""
        for kept in self._by_owner().kept.get(claim, ()):
            if self.owner_of(kept) == claim:
                yield kept
        for name, owner in self.held.items():
            volume = self.volumes.get(name)
            if volume is not None and owner == claim != volume.claim:
                yield volume

    def free_of(self, kind: str, node: Node | None) -> Iterator[PersistentVolume]:
        """Unreserved volumes of a class, the smallest first.

        With a node, volumes whose first label excludes it are left out; callers check the rest with `volumes.reaches`.
        """
        known = self._by_owner()
        shelves = known.free.get(kind, {})
        if node is not None:
            here = [(label, node.labels[label]) for label in known.labels if label in node.labels]
            shelves = {place: shelves[place] for place in (ANYWHERE, *here) if place in shelves}
        found = heapq.merge(*shelves.values(), key=lambda volume: (volume.storage, volume.name))
        return (volume for volume in found if not self.owner_of(volume))

    def _by_owner(self) -> Volumes:
        if self._sorted is None:
            self._sorted = Volumes({}, {}, set())
            for volume in sorted(self.volumes.values(), key=lambda volume: (volume.storage, volume.name)):
                if not volume.claim and volume.phase == AVAILABLE:
                    shelves = self._sorted.free.setdefault(volume.storage_class, {})
                    for place in places_of(volume):
                        shelves.setdefault(place, []).append(volume)
                        self._sorted.labels.add(place[0])
            for _, volume in sorted(self.volumes.items()):
                if volume.claim and volume.phase != RELEASED:
                    self._sorted.kept.setdefault(volume.claim, []).append(volume)
        return self._sorted

    def hold(self, plan: "VolumeBindingPlan") -> None:
        """Assume the volumes of a pod's claims."""
        self.held.update({volume: claim for claim, volume in plan.bindings})
        self.chosen.update(dict.fromkeys(plan.provisions, plan.node))

    def release(self, plan: "VolumeBindingPlan") -> None:
        """Undo the assumption."""
        for _, volume in plan.bindings:
            self.held.pop(volume, None)
        for claim in plan.provisions:
            self.chosen.pop(claim, None)


def places_of(volume: PersistentVolume) -> tuple[Place, ...]:
    """Label values of nodes that reach the volume, for the first label of its affinity."""
    terms = volume.node_affinity
    asked = terms[0].expressions if terms is not None and len(terms) == 1 else ()
    one = next((one for one in asked if one.operator == "In"), None)
    return (ANYWHERE,) if one is None else tuple((one.key, value) for value in dict.fromkeys(one.values))


class VolumeBindingPlan(Struct, frozen=True):
    """Volumes that a pod's claims would get on a node, or why they cannot."""

    node: str
    bindings: tuple[tuple[str, str], ...] = ()
    """(claim, existing volume)."""
    provisions: tuple[str, ...] = ()
    """Claims for which a volume would be provisioned."""
    reasons: tuple[str, ...] = ()

    @property
    def waits(self) -> bool:
        """True if something has to be bound before the pod."""
        return bool(self.bindings or self.provisions)

    @property
    def volumes(self) -> tuple[tuple[str, str], ...]:
        """(claim, volume) of each claim; no volume where one has to be provisioned."""
        return (*self.bindings, *((claim, "") for claim in self.provisions))


def claim_name(pod: Pod, volume: PodVolume) -> str:
    """The name of the claim that the pod's volume names, or of the one created for an ephemeral volume."""
    return volume.claim or f"{pod.name}-{volume.name}"


def claim_keys(pod: Pod) -> tuple[str, ...]:
    """`namespace/name` of the claim of each volume of the pod, in its order."""
    return tuple(f"{pod.namespace}/{claim_name(pod, volume)}" for volume in pod.template.volumes)


def is_bound(claim: PersistentVolumeClaim) -> bool:
    """True if claim and volume refer to each other."""
    return bool(claim.volume) and claim.bound
