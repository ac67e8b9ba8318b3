"""Kinds that are not read: known kinds that are not simulated, kinds without effect, and unknown kinds."""

from collections.abc import Mapping
from difflib import get_close_matches

_UNSIMULATED: Mapping[str, tuple[str, ...]] = {
    "": ("ReplicationController",),
    "argoproj.io": ("CronWorkflow", "Workflow"),
    "config.kueue.x-k8s.io": ("Configuration",),
    "karpenter.sh": ("NodeClaim",),
    "scheduling.run.ai": ("PodGroup",),
}
_NO_EFFECT: Mapping[str, tuple[str, ...]] = {
    "": ("ConfigMap", "Endpoints", "Event", "Secret", "Service", "ServiceAccount"),
    "apps": ("ControllerRevision", "DaemonSet"),
    "rbac.authorization.k8s.io": ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"),
    "apiextensions.k8s.io": ("CustomResourceDefinition",),
    "admissionregistration.k8s.io": ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"),
    "networking.k8s.io": ("Ingress", "NetworkPolicy"),
    "storage.k8s.io": ("CSIDriver", "CSIStorageCapacity", "VolumeAttachment", "VolumeAttributesClass"),
    "karpenter.k8s.aws": ("EC2NodeClass",),
    "kustomize.config.k8s.io": ("Kustomization",),
    "nvidia.com": ("ClusterPolicy",),
}


def is_unsimulated(group: str, kind: str) -> bool:
    """True for kinds that create pods or affect their placement, but are not simulated."""
    return kind in _UNSIMULATED.get(group, ())


def has_no_effect(group: str, kind: str) -> bool:
    """True for kinds without effect on queues and placement."""
    return kind in _NO_EFFECT.get(group, ())


def likely_meant(group: str, kind: str, read: Mapping[tuple[str, str], object]) -> str:
    """Return the kind that was probably meant by an unknown one; empty if none is similar."""
    for known_group, known in read:
        if known == kind:
            return f"{known} of {known_group or 'v1'}"
    fellows = [known for known_group, known in read if known_group == group]
    fellows += [*_UNSIMULATED.get(group, ()), *_NO_EFFECT.get(group, ())]
    lower = {known.lower(): known for known in fellows}
    near = get_close_matches(kind[:60].lower(), lower, 1, 0.7)
    return lower[near[0]] if near else ""
