"""VolumeBinding: finds nodes that reach a pod's volumes, and the volumes that its claims would get there.

Kubernetes 1.35 plugins/volumebinding, which Volcano 1.15 has a copy of. Not simulated: capacity that CSI drivers
publish (CSIStorageCapacity), and inline volumes of pods.
"""

from collections.abc import Iterable, Sequence

from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.labels import Requirement
from gpuconsole.model.storage import LOST, PersistentVolume, PersistentVolumeClaim
from gpuconsole.scheduling.kube.filters import term_matches
from gpuconsole.scheduling.kube.storage import Storage, VolumeBindingPlan, claim_keys, claim_name, is_bound

UNBOUND = "pod has unbound immediate PersistentVolumeClaims"
NO_VOLUMES = "node(s) didn't find available persistent volumes to bind"
ELSEWHERE = "node(s) didn't match PersistentVolume's node affinity"
VOLUME_GONE = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
ORDER = (ELSEWHERE, NO_VOLUMES, VOLUME_GONE)


def trouble(pod: Pod, storage: Storage) -> str:
    """Why no node is feasible: a claim is missing, lost, terminating, or unbound with immediate binding (PreFilter)."""
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
            kind = storage.class_of(claim)
            if kind and kind not in storage.classes:
                return f'storageclass.storage.k8s.io "{kind}" not found'
            if not kind or not storage.classes[kind].waits or claim.volume:
                return UNBOUND
    return ""


def plan(pod: Pod, node: Node, storage: Storage) -> VolumeBindingPlan:
    """Volumes that the pod's claims would get on the node (FindPodVolumes). Call only for pods without `trouble`."""
    claims = [storage.claims[key] for key in claim_keys(pod)]
    elsewhere = (_bound_elsewhere(claim, node, storage) for claim in claims if is_bound(claim))
    reasons = [text for text in (next(filter(None, elsewhere), ""),) if text]
    waiting = [claim for claim in claims if not is_bound(claim)]
    found = _find(waiting, node, storage) if waiting else VolumeBindingPlan(node.name)
    if found is None:
        reasons.append(NO_VOLUMES)
    if found is None or reasons:
        # Volcano and kube-scheduler name volumes bound elsewhere first, and missing volumes last.
        return VolumeBindingPlan(node.name, reasons=tuple(sorted(reasons, key=ORDER.index)))
    return found


def _bound_elsewhere(claim: PersistentVolumeClaim, node: Node, storage: Storage) -> str:
    volume = storage.volumes.get(claim.volume)
    if volume is None:
        return VOLUME_GONE
    return "" if reaches(volume, node) else ELSEWHERE


def reaches(volume: PersistentVolume, node: Node) -> bool:
    """True if pods on the node can use the volume."""
    return volume.node_affinity is None or any(term_matches(term, node) for term in volume.node_affinity)


def _find(claims: Sequence[PersistentVolumeClaim], node: Node, storage: Storage) -> VolumeBindingPlan | None:
    """Match existing volumes, the smallest claim first, and provision the rest."""
    if any(storage.node_of(claim) not in ("", node.name) for claim in claims):
        return None
    taken: set[str] = set()
    bindings, provisions = [], []
    for claim in sorted(claims, key=lambda claim: claim.storage):
        volume = None if storage.node_of(claim) else match(claim, node, storage, taken)
        if volume is not None:
            taken.add(volume.name)
            bindings.append((claim.key, volume.name))
        elif _can_be_made(claim, node, storage):
            provisions.append(claim.key)
        else:
            return None
    return VolumeBindingPlan(node.name, tuple(bindings), tuple(provisions))


def match(
    claim: PersistentVolumeClaim, node: Node | None, storage: Storage, taken: Iterable[str] = ()
) -> PersistentVolume | None:
    """The volume reserved for the claim, else the smallest that matches it (FindMatchingVolume); None if none does.

    Without a node, volumes count wherever they are.
    """
    for volume in storage.kept_for(claim.key):
        if volume.name not in taken and not volume.deleted and _holds(volume, claim):
            return volume if node is None or reaches(volume, node) else None
    for volume in storage.free_of(storage.class_of(claim), node):
        if volume.name in taken or volume.deleted or not _holds(volume, claim) or not _suits(volume, claim):
            continue
        if node is None or reaches(volume, node):
            return volume
    return None


def _holds(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    return volume.storage >= claim.storage and volume.mode == claim.mode


def _suits(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    chosen = claim.selector is None or claim.selector.matches(volume.labels)
    return chosen and set(claim.access_modes) <= set(volume.access_modes)


def _can_be_made(claim: PersistentVolumeClaim, node: Node, storage: Storage) -> bool:
    kind = storage.classes.get(storage.class_of(claim))
    return kind is not None and kind.provisions and allowed(kind.topologies, node)


def allowed(topologies: Sequence[Sequence[Requirement]], node: Node) -> bool:
    """True if a class with these allowedTopologies can provision a volume for the node; none means anywhere."""
    return not topologies or any(all(one.matches(node.labels) for one in term) for term in topologies)
