"""Storage: PersistentVolume, PersistentVolumeClaim (v1), StorageClass, CSINode (storage.k8s.io/v1)."""

from gpuconsole.model.clock import Time
from gpuconsole.model.documents.amounts import resources
from gpuconsole.model.documents.metadata import metadata
from gpuconsole.model.documents.reader import INT32, Reader
from gpuconsole.model.documents.selectors import node_term, selector
from gpuconsole.model.labels import NodeTerm, Requirement
from gpuconsole.model.storage import (
    AVAILABLE,
    BOUND,
    DEFAULT_CLASS,
    FILESYSTEM,
    LOST,
    RELEASED,
    CSINode,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)

_BOUND = "pv.kubernetes.io/bind-completed"
_SELECTED = "volume.kubernetes.io/selected-node"
_CLASS = "volume.beta.kubernetes.io/storage-class"
_MODES = (FILESYSTEM, "Block")
_VOLUME_PHASES = ("", "Pending", AVAILABLE, BOUND, RELEASED, "Failed")
_WAITS = "WaitForFirstConsumer"


def volume(reader: Reader, now: Time) -> PersistentVolume:
    """Read a PersistentVolume; without a phase it is bound if it names a claim, otherwise available."""
    meta = metadata(reader, now, namespaced=False)
    spec = reader.mapping("spec")
    held, csi = spec.mapping("claimRef"), spec.mapping("csi")
    claim = f"{held.text('namespace') or 'default'}/{held.text('name')}" if held.text("name") else ""
    phase = reader.mapping("status").one_of("phase", "", _VOLUME_PHASES)
    return PersistentVolume(
        name=meta.name,
        created=meta.created,
        labels=meta.labels,
        storage=resources(spec, "capacity").get("storage", 0),
        storage_class=meta.annotations.get(_CLASS) or spec.text("storageClassName"),
        access_modes=spec.texts("accessModes"),
        mode=spec.one_of("volumeMode", FILESYSTEM, _MODES),
        node_affinity=_nodes(spec),
        claim=claim,
        phase=phase or (BOUND if claim else AVAILABLE),
        disposable=spec.text("persistentVolumeReclaimPolicy") == "Delete",
        driver=csi.text("driver"),
        handle=csi.text("volumeHandle"),
        deleted=reader.mapping("metadata").moment("deletionTimestamp") or 0,
    )


def _nodes(spec: Reader) -> tuple[NodeTerm, ...] | None:
    required = spec.down("nodeAffinity", "required")
    return tuple(node_term(term) for term in required.items("nodeSelectorTerms")) if required.value else None


def claim(reader: Reader, now: Time) -> PersistentVolumeClaim:
    """Read a PersistentVolumeClaim; it is bound if its annotation or its status says so."""
    meta = metadata(reader, now)
    spec = reader.mapping("spec")
    phase = reader.mapping("status").one_of("phase", "", ("", "Pending", BOUND, LOST))
    named = meta.annotations.get(_CLASS)
    return PersistentVolumeClaim(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        created=meta.created,
        storage_class=named or (spec.text("storageClassName") if "storageClassName" in spec else None),
        storage=resources(spec.mapping("resources"), "requests").get("storage", 0),
        access_modes=spec.texts("accessModes"),
        mode=spec.one_of("volumeMode", FILESYSTEM, _MODES),
        selector=selector(spec, "selector"),
        volume=spec.text("volumeName"),
        bound=_BOUND in meta.annotations or phase == BOUND,
        phase=phase,
        selected_node=meta.annotations.get(_SELECTED, ""),
        deleted=reader.mapping("metadata").moment("deletionTimestamp") or 0,
    )


def storage_class(reader: Reader, now: Time) -> StorageClass:
    """Read a StorageClass."""
    meta = metadata(reader, now, namespaced=False)
    if not reader.text("provisioner"):
        reader.report.refused(reader.at("provisioner"), "no provisioner is named", "name one", "required")
    return StorageClass(
        name=meta.name,
        created=meta.created,
        provisioner=reader.text("provisioner"),
        waits=reader.one_of("volumeBindingMode", "Immediate", ("Immediate", _WAITS)) == _WAITS,
        topologies=tuple(
            tuple(
                Requirement(one.text("key"), "In", one.texts("values")) for one in place.items("matchLabelExpressions")
            )
            for place in reader.items("allowedTopologies")
        ),
        keeps=reader.text("reclaimPolicy") == "Retain",
        default=meta.annotations.get(DEFAULT_CLASS) == "true",
    )


def csi_node(reader: Reader, now: Time) -> CSINode:
    """Read a CSINode: the volume limits of the drivers that state one."""
    meta = metadata(reader, now, namespaced=False)
    limits = {}
    for place in reader.mapping("spec").items("drivers"):
        count = place.mapping("allocatable").optional("count", high=INT32)
        if count is not None:
            limits[place.text("name")] = count
    return CSINode(name=meta.name, limits=limits)
