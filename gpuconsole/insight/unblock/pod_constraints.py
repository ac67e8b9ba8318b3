"""Search for changes of a workload's placement rules: tolerations, node selectors and topology levels."""

from collections.abc import Iterator

from gpuconsole.insight.unblock.steps import DropSelector, Step, Steps, Tolerate, UseTopology
from gpuconsole.insight.unblock.trial import ChangeTrial
from gpuconsole.model.labels import HOSTNAME
from gpuconsole.model.queues import ResourceFlavor
from gpuconsole.scheduling.kueue.entry import CycleEntry

KEEPING = ("NoSchedule", "NoExecute")
"""Taint effects that exclude pods."""
MOST_TAINTS = 8


def topologies(trial: ChangeTrial, entry: CycleEntry) -> Iterator[Steps]:
    """Try the next wider topology levels; for a level that no topology has, the widest existing one."""
    setup = trial.rehearsal.session.setup
    for pod_set in trial.rehearsal.workloads[trial.key].pod_sets:
        asked = pod_set.topology
        if asked is None or not (level := asked.required or asked.preferred):
            continue
        domains = [d for flavor, d in setup.topologies.items() if level in d.levels]
        if not domains:
            there = dict.fromkeys(one for d in setup.topologies.values() for one in d.levels if one != HOSTNAME)
            others = [
                UseTopology(pod_set=pod_set.name, required=one)
                if asked.required
                else UseTopology(pod_set=pod_set.name, preferred=one)
                for one in there
            ]
            others.append(UseTopology(pod_set=pod_set.name))
            yield next(((step,) for step in others if trial.works((step,))), ())
        if not asked.required:
            continue
        for domain in domains[:1]:
            above = domain.levels[: domain.levels.index(asked.required)]
            looser = [UseTopology(pod_set=pod_set.name, required=level) for level in reversed(above)]
            looser.append(UseTopology(pod_set=pod_set.name, preferred=asked.required))
            looser.append(UseTopology(pod_set=pod_set.name))
            yield next(((step,) for step in looser if trial.works((step,))), ())


def allowing(trial: ChangeTrial, entry: CycleEntry) -> Iterator[Steps]:
    """Try tolerations to add and node selector labels to remove so that its pods match a flavor."""
    setup = trial.rehearsal.session.setup
    pod_sets = trial.rehearsal.workloads[trial.key].pod_sets
    for name in dict.fromkeys(flavor for group in entry.rules.groups for flavor in group.flavors):
        flavor = setup.flavors.get(name)
        if flavor is None:
            continue
        steps: list[Step] = []
        for pod_set in pod_sets:
            template = pod_set.template
            known = (*template.tolerations, *flavor.tolerations)
            steps += [
                Tolerate(pod_set=pod_set.name, key=taint.key, value=taint.value, effect=taint.effect)
                for taint in flavor.node_taints
                if taint.effect in KEEPING and not any(t.tolerates(taint) for t in known)
            ]
            steps += [
                DropSelector(pod_set=pod_set.name, label=label)
                for label, value in template.node_selector.items()
                if flavor.node_labels.get(label, value) != value
            ]
        if steps:
            yield trial.least(steps)
        if name in setup.topologies:
            yield from _suiting_nodes(trial, flavor)


def _suiting_nodes(trial: ChangeTrial, flavor: ResourceFlavor) -> Iterator[Steps]:
    """Try `allowing` for the nodes of a topology, which admission checks: taints, selectors, or both."""
    setup = trial.rehearsal.session.setup
    known_nodes = (setup.objects.nodes.get(name) for name in setup.topologies[flavor.name].leaf_of)
    taints = [taint for node in known_nodes if node is not None for taint in node.taints]
    tolerated: list[Step] = []
    dropped: list[Step] = []
    for pod_set in trial.rehearsal.workloads[trial.key].pod_sets:
        template = pod_set.template
        known = (*template.tolerations, *flavor.tolerations)
        new = [
            Tolerate(pod_set=pod_set.name, key=taint.key, value=taint.value, effect=taint.effect)
            for taint in taints
            if taint.effect in KEEPING and not any(one.tolerates(taint) for one in known)
        ]
        tolerated += list(dict.fromkeys(new))[:MOST_TAINTS]
        dropped += [
            DropSelector(pod_set=pod_set.name, label=label)
            for label in template.node_selector
            if label not in flavor.node_labels
        ]
    alone = [trial.least(steps) for steps in (tolerated, dropped) if steps]
    yield from alone
    if tolerated and dropped and not any(alone):
        yield trial.least((*tolerated, *dropped))
