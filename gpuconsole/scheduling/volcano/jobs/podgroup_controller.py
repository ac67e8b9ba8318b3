"""PodGroups of pods that no Volcano Job made: plain ones, those of ReplicaSets, StatefulSets and Jobs."""

from collections.abc import Mapping

from gpuconsole.model.cluster import Pod
from gpuconsole.model.volcano import NetworkTopology, PodGroup
from gpuconsole.scheduling.volcano.jobs import labels
from gpuconsole.scheduling.volcano.jobs.quota import needs

MIN_MEMBER = "scheduling.volcano.sh/group-min-member"
QUEUE_NAME = "scheduling.volcano.sh/queue-name"
PREFIX = "podgroup-"
"""The name of a made PodGroup is this and the uid of the pods' owner, or of the pod."""
_DOMAIN = "volcano.sh/"
_MODE = "volcano.sh/network-topology-mode"
_HIGHEST_TIER = "volcano.sh/network-topology-highest-tier"
_NOTES = (labels.PREEMPTABLE, labels.COOLDOWN, labels.REVOCABLE_ZONE)
_MODES = ("hard", "soft")


def group_of_pod(pod: Pod, name: str, owner: Mapping[str, str], least: int | None = None) -> PodGroup:
    """The PodGroup that is made for a pod; `owner` are the annotations of what the pod belongs to.

    It asks for one pod, if the owner or `least` says nothing else, and for what so many such pods need. The pod's own
    annotations come before its owner's.
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
    """How close the pods have to be, as annotations say; without a mode that is known it is hard."""
    mode, tier = pod.annotations.get(_MODE), pod.annotations.get(_HIGHEST_TIER)
    if mode is None and tier is None:
        return None
    known = (mode or "").lower()
    highest = int(tier) if tier is not None and tier.removeprefix("-").isdecimal() else None
    return NetworkTopology(mode=known if known in _MODES else "hard", highest_tier=highest)
