"""PersistentVolumeClaims and ResourceClaims of pods: created, bound or allocated, released.

A PersistentVolumeClaim is bound at once, or on the node of the first pod that uses it, as in Kubernetes' volume
controllers; provisioning takes no time and never fails. A ResourceClaim is created from its template, allocated when
its pod is bound, and released when the pod ends (resource claim controller; the scheduler's PreBind).
"""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from gpuconsole.model.cluster import (
    AVAILABLE,
    BOUND,
    LOST,
    RELEASED,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    StorageClass,
)
from gpuconsole.model.devices import ResourceClaim, ResourceClaimTemplate
from gpuconsole.model.events import Bind
from gpuconsole.model.labels import HOSTNAME, NodeTerm, Requirement
from gpuconsole.scheduling.devices.allocator import claim_keys
from gpuconsole.scheduling.kube.volumes import Storage, claim_name, is_bound, match_volume
from gpuconsole.sim.controllers import admission_plugins, volcano_jobs
from gpuconsole.sim.world import World

ZONE = "topology.kubernetes.io/zone"
VOLUME_TOPOLOGY_LABELS: Mapping[str, str] = {
    "ebs.csi.aws.com": ZONE,
    "kubernetes.io/aws-ebs": ZONE,
    "pd.csi.storage.gke.io": ZONE,
    "kubernetes.io/gce-pd": ZONE,
    "disk.csi.azure.com": ZONE,
    "rancher.io/local-path": HOSTNAME,
    "topolvm.io": HOSTNAME,
    "local.csi.openebs.io": HOSTNAME,
}
"""Provisioner → label: only nodes with the same value as the node of the first pod can use its volumes."""


def reconcile_volume_claims(world: World) -> None:
    """Create PersistentVolumeClaims of pods, delete those of deleted pods, and bind those with immediate binding."""
    world.volume_claims_due = False
    for claim in list(world.state.table("persistent_volume_claims").all()):
        if claim.pod and world.pod(claim.pod) is None:
            world.drop(PersistentVolumeClaim, claim.key)
    for pod in list(world.state.table("pods").all()):
        if pod.template.volumes and not pod.done:
            _create_volume_claims(world, pod)
    claims = list(world.state.table("persistent_volume_claims").all())
    world.volcano_requests += volcano_jobs.delete_orphaned_claims(world)
    _release_volumes(world)
    current = (world.state.get(PersistentVolumeClaim, claim.key) for claim in claims)
    waiting = [claim for claim in current if claim is not None and not is_bound(claim)]
    storage = _storage_objects(world) if waiting else Storage()
    for claim in waiting:
        _bind_immediately(world, claim, storage)


def bind_volume_claims(world: World, decision: Bind) -> None:
    """Bind the PersistentVolumeClaims of a pod to the volumes that the scheduler chose, or to new ones for its node."""
    node = world.node(decision.node)
    for key, name in decision.volumes:
        claim = world.state.get(PersistentVolumeClaim, key)
        if claim is None or is_bound(claim):
            continue
        if name:
            volume = world.state.get(PersistentVolume, name)
            if volume is not None:
                _bind(world, claim, volume)
        elif node is not None:
            kind = world.state.get(StorageClass, Storage(classes=_storage_classes(world)).class_of(claim))
            if kind is not None:
                _bind(world, claim, _provisioned_volume(claim, kind, _volume_affinity(kind, node)))


def _create_volume_claims(world: World, pod: Pod) -> None:
    for volume in pod.template.volumes:
        name = claim_name(pod, volume)
        key = f"{pod.namespace}/{name}"
        if volume.claim or world.state.get(PersistentVolumeClaim, key) is not None:
            continue
        claim = PersistentVolumeClaim(
            namespace=pod.namespace,
            name=name,
            uid=world.uid("PersistentVolumeClaim", key),
            created=world.now,
            storage_class=volume.storage_class,
            storage=volume.storage,
            access_modes=volume.access_modes,
            pod=pod.key,
        )
        refusal = admission_plugins.quota_refusal(world, claim)
        if refusal:
            text = f"create PersistentVolumeClaim {name}: {refusal}"
            admission_plugins.record_claim_refusal(world, pod, "FailedCreate", text)
        else:
            world.put(claim)


def _release_volumes(world: World) -> None:
    """Delete or release volumes whose claims are deleted; claims whose volumes are deleted are Lost."""
    for volume in list(world.state.table("persistent_volumes").all()):
        claim = world.state.get(PersistentVolumeClaim, volume.claim) if volume.claim else None
        if volume.phase == BOUND and claim is None:
            if volume.disposable:
                world.drop(PersistentVolume, volume.key)
            else:
                world.put(replace(volume, phase=RELEASED))
    for claim in list(world.state.table("persistent_volume_claims").all()):
        if is_bound(claim) and claim.phase == BOUND and world.state.get(PersistentVolume, claim.volume) is None:
            world.put(replace(claim, phase=LOST))


def _bind_immediately(world: World, claim: PersistentVolumeClaim, storage: Storage) -> None:
    """Bind a claim with immediate binding, or one that names its volume or has one reserved for it."""
    found = _volume_for(claim, storage)
    kind = storage.classes.get(storage.class_of(claim))
    if found is not None:
        storage.assumed_volumes[found.name] = claim.key
        _bind(world, claim, found)
    elif not claim.volume and kind is not None and not kind.waits and kind.provisions:
        _bind(world, claim, _provisioned_volume(claim, kind, _immediate_affinity(kind)))


def _volume_for(claim: PersistentVolumeClaim, storage: Storage) -> PersistentVolume | None:
    if claim.volume:
        named = storage.volumes.get(claim.volume)
        mine = named is not None and storage.owner_of(named) in ("", claim.key) and named.phase in (AVAILABLE, BOUND)
        return named if mine else None
    kept = next(storage.reserved_for(claim.key), None)
    kind = storage.classes.get(storage.class_of(claim))
    return match_volume(claim, None, storage) if kept is None and (kind is None or not kind.waits) else kept


def _bind(world: World, claim: PersistentVolumeClaim, volume: PersistentVolume) -> None:
    world.put(replace(volume, claim=claim.key, phase=BOUND))
    world.put(replace(claim, volume=volume.name, bound=True, phase=BOUND))


def _provisioned_volume(
    claim: PersistentVolumeClaim, kind: StorageClass, affinity: tuple[NodeTerm, ...] | None
) -> PersistentVolume:
    return PersistentVolume(
        name=f"pvc-{claim.uid or claim.name}",
        storage=claim.storage,
        storage_class=kind.name,
        access_modes=claim.access_modes,
        mode=claim.mode,
        node_affinity=affinity,
        disposable=not kind.keeps,
        driver=kind.provisioner,
        handle=f"pvc-{claim.uid or claim.name}",
    )


def _volume_affinity(kind: StorageClass, node: Node) -> tuple[NodeTerm, ...] | None:
    """The node affinity of a volume that is provisioned for this node."""
    keys = sorted({one.key for term in kind.topologies for one in term} | set(_topology_labels(kind.provisioner)))
    terms = tuple(Requirement(key, "In", (node.labels[key],)) for key in keys if key in node.labels)
    return (NodeTerm(terms),) if terms else None


def _topology_labels(provisioner: str) -> Iterable[str]:
    return (VOLUME_TOPOLOGY_LABELS[provisioner],) if provisioner in VOLUME_TOPOLOGY_LABELS else ()


def _immediate_affinity(kind: StorageClass) -> tuple[NodeTerm, ...] | None:
    """The node affinity of a volume with immediate binding: the first allowed topology."""
    return (NodeTerm(kind.topologies[0]),) if kind.topologies else None


def _storage_objects(world: World) -> Storage:
    tables = world.state
    return Storage(
        claims={claim.key: claim for claim in tables.table("persistent_volume_claims").all()},
        volumes={volume.key: volume for volume in tables.table("persistent_volumes").all()},
        classes=_storage_classes(world),
    )


def _storage_classes(world: World) -> dict[str, StorageClass]:
    return {kind.key: kind for kind in world.state.table("storage_classes").all()}


def reconcile_resource_claims(world: World) -> None:
    """Create ResourceClaims of pods, delete those of ended or deleted pods, and deallocate those that no pod uses."""
    world.resource_claims_due = False
    for claim in list(world.state.table("resource_claims").all()):
        if claim.pod and _is_pod_done(world.pod(claim.pod)):
            world.drop(ResourceClaim, claim.key)
        elif claim.reserved:
            _release_resource_claim(world, claim)
    for pod in list(world.state.table("pods").all()):
        if pod.template.resource_claims and not pod.done:
            _create_resource_claims(world, pod)


def _is_pod_done(owner: Pod | None) -> bool:
    """True if the pod of a claim no longer needs it (resource claim controller: isPodDone)."""
    return owner is None or owner.done


def bind_resource_claims(world: World, decision: Bind) -> None:
    """Record the allocation of a bound pod's ResourceClaims, and reserve them for it."""
    pod = world.pod(decision.pod)
    if pod is None or not pod.template.resource_claims:
        return
    given = dict(decision.devices)
    for key in dict.fromkeys(claim_keys(pod)):
        claim = world.state.get(ResourceClaim, key)
        if claim is None:
            continue
        allocation = claim.allocation or given.get(key)
        if allocation is not None and pod.key not in claim.reserved:
            world.put(replace(claim, allocation=allocation, reserved=(*claim.reserved, pod.key)))


def _create_resource_claims(world: World, pod: Pod) -> None:
    for named, key in zip(pod.template.resource_claims, claim_keys(pod), strict=True):
        template = world.state.get(ResourceClaimTemplate, f"{pod.namespace}/{named.template}")
        if named.claim or template is None or world.state.get(ResourceClaim, key) is not None:
            continue
        claim = ResourceClaim(
            namespace=pod.namespace,
            name=key.partition("/")[2],
            uid=world.uid("ResourceClaim", key),
            requests=template.requests,
            constraints=template.constraints,
            pod=pod.key,
        )
        refusal = admission_plugins.quota_refusal(world, claim)
        if refusal:
            text = f"PodResourceClaim {named.name}: create ResourceClaim: {refusal}"
            admission_plugins.record_claim_refusal(world, pod, "FailedResourceClaimCreation", text)
        else:
            world.put(claim)


def _release_resource_claim(world: World, claim: ResourceClaim) -> None:
    users = tuple(key for key in claim.reserved if (pod := world.pod(key)) is not None and not pod.done)
    if users != claim.reserved:
        world.put(replace(claim, reserved=users, allocation=claim.allocation if users else None))
