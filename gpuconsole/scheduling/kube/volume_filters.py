"""Volume filters VolumeZone, NodeVolumeLimits and VolumeRestrictions.

Kubernetes 1.35 plugins/volumezone, nodevolumelimits, volumerestrictions; Volcano 1.15 has the first two.
"""

from collections.abc import Iterable, Iterator, Mapping

from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.storage import ONE_POD
from gpuconsole.scheduling.kube.storage import Storage, claim_keys

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


def zone_trouble(pod: Pod, storage: Storage) -> str:
    """VolumeZone's PreFilter: why the pod's volumes have no known zone; empty if all have one.

    Unbound claims of a WaitForFirstConsumer class are skipped.
    """
    for key in claim_keys(pod):
        claim = storage.claims.get(key)
        if claim is None:
            return f'persistentvolumeclaim "{key.partition("/")[2]}" not found'
        kind = storage.class_of(claim)
        if claim.volume:
            if claim.volume not in storage.volumes:
                return f'persistentvolume "{claim.volume}" not found'
        elif not kind:
            return "PersistentVolumeClaim had no pv name and storageClass name"
        elif kind not in storage.classes:
            return f'storageclass.storage.k8s.io "{kind}" not found'
        elif not storage.classes[kind].waits:
            return "PersistentVolume had no name"
    return ""


def zone_refusal(pod: Pod, node: Node, storage: Storage) -> str:
    """VolumeZone: why the labels of a bound volume exclude the node; empty if none does."""
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


def limit_refusal(pod: Pod, node: Node, others: Iterable[Pod], storage: Storage) -> str:
    """NodeVolumeLimits: why a driver cannot attach the pod's volumes to the node; empty if it can.

    A volume that several pods use counts once.
    """
    limits = storage.limits.get(node.name)
    if limits is None or not limits.limits:
        return ""
    wanted = dict(_attached(pod, storage))
    there = dict(pair for other in others for pair in _attached(other, storage))
    for driver in sorted(set(wanted.values())):
        new = sum(1 for handle, of in wanted.items() if of == driver and handle not in there)
        old = sum(1 for of in there.values() if of == driver)
        if new and driver in limits.limits and old + new > limits.limits[driver]:
            return TOO_MANY
    return ""


def _attached(pod: Pod, storage: Storage) -> Iterator[tuple[str, str]]:
    """(volume, driver) of each claim of the pod; a claim without a volume counts separately."""
    for key in claim_keys(pod):
        claim = storage.claims.get(key)
        if claim is None:
            continue
        volume = storage.volumes.get(claim.volume)
        if volume is not None and volume.driver:
            yield f"{volume.driver}/{volume.handle or volume.name}", volume.driver
        elif volume is None:
            kind = storage.classes.get(storage.class_of(claim))
            if kind is not None and kind.provisions:
                yield f"{kind.provisioner}/{key}", kind.provisioner


def use_refusal(pod: Pod, others: Iterable[Pod], storage: Storage) -> str:
    """VolumeRestrictions: the reason if another pod uses a ReadWriteOncePod claim of the pod; empty otherwise."""
    single = {key for key in claim_keys(pod) if key in storage.claims and ONE_POD in storage.claims[key].access_modes}
    taken = single and any(single.intersection(claim_keys(other)) for other in others if other.key != pod.key)
    return IN_USE if taken else ""
