"""PodGroups for pods that belong to no Volcano Job: plain pods and those of ReplicaSets, StatefulSets and Jobs."""

from collections.abc import Mapping

from gpuconsole.model.cluster import Pod
from gpuconsole.model.volcano import NetworkTopology, PodGroup
from gpuconsole.scheduling.volcano.jobs import labels
from gpuconsole.scheduling.volcano.jobs.quota import needs

MIN_MEMBER = "scheduling.volcano.sh/group-min-member"
QUEUE_NAME = "scheduling.volcano.sh/queue-name"
PREFIX = "podgroup-"
"""Prefix of the names of PodGroups that Volcano creates, before the uid of the pod's owner or of the pod."""
_DOMAIN = "volcano.sh/"
_MODE = "volcano.sh/network-topology-mode"
_HIGHEST_TIER = "volcano.sh/network-topology-highest-tier"
_NOTES = (labels.PREEMPTABLE, labels.COOLDOWN, labels.REVOCABLE_ZONE)
_MODES = ("hard", "soft")


def group_of_pod(pod: Pod, name: str, owner: Mapping[str, str], least: int | None = None) -> PodGroup:
    """The PodGroup that Volcano creates for a pod; `owner` are the annotations of the pod's owner.

    minMember is `least`, else the owner's group-min-member annotation, else 1; minResources is the quota usage of that
    many such pods. The pod's annotations take precedence over its owner's.
    """
    members = _members(owner) if least is None else least
    notes = {key: value for key, value in owner.items() if key.startswith(_DOMAIN)}
    budget = labels.BUDGET_LEAST if labels.BUDGET_LEAST in pod.annotations else labels.BUDGET_MOST
    own = {key: pod.annotations[key] for key in (*_NOTES, budget) if key in pod.annotations}
    marks = {key: pod.labels[key] for key in _NOTES[:2] if key in pod.labels}
    return PodGroup(
        namespace=pod.namespace,
        name=name,
        labels=marks,
        annotations={**notes, **own},
        min_member=members,
        queue=pod.annotations.get(QUEUE_NAME, ""),
        priority_class=pod.template.priority_class,
        min_resources=needs([(pod.template, members)]),
        network_topology=_topology(pod),
        phase="Pending",
    )


def _members(owner: Mapping[str, str]) -> int:
    text = owner.get(MIN_MEMBER, "")
    return int(text) if text.isdecimal() else 1


def _topology(pod: Pod) -> NetworkTopology | None:
    """The network topology in the pod's annotations; its mode is hard unless a valid mode is named."""
    mode, tier = pod.annotations.get(_MODE), pod.annotations.get(_HIGHEST_TIER)
    if mode is None and tier is None:
        return None
    known = (mode or "").lower()
    highest = int(tier) if tier is not None and tier.removeprefix("-").isdecimal() else None
    return NetworkTopology(mode=known if known in _MODES else "hard", highest_tier=highest)
