"""Volcano's common scheduler harness: a case's objects, one session on them, its actions, and what came of it."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gpuconsole.model.manifests import decode_object
from gpuconsole.scheduling.devices.allocator import DraInventory
from gpuconsole.scheduling.kube.volumes import Storage
from gpuconsole.scheduling.volcano.actions import ACTIONS
from gpuconsole.scheduling.volcano.api.hyper_nodes import HyperNodeDomains, HyperNodeInfo
from gpuconsole.scheduling.volcano.api.node import NodeInfo
from gpuconsole.scheduling.volcano.config import (
    EnabledFlag,
    Tier,
    VolcanoArguments,
    VolcanoConfiguration,
    VolcanoPluginOption,
)
from gpuconsole.scheduling.volcano.engine import phase_of
from gpuconsole.scheduling.volcano.scheduler_conf import PLUGINS
from gpuconsole.scheduling.volcano.session import ClusterInfo, Sharding, VolcanoPlugin, VolcanoSession
from gpuconsole.scheduling.volcano.store import build_cluster_info
from tests.conformance.tables import Case, Table, compare
from tests.conformance.volcano import objects

Document = Mapping[str, Any]
FLAGS = {flag.value: flag for flag in EnabledFlag}


def cluster(case: Document) -> ClusterInfo:
    """What the cache of the harness holds after the case's objects were added."""
    classes = [objects.priority_class(document) for document in case.get("PriClass") or ()]
    made = build_cluster_info(
        nodes=[NodeInfo(objects.node(document)) for document in case.get("Nodes") or ()],
        pods=[objects.pod(document) for document in case.get("Pods") or ()],
        groups=[objects.pod_group(document) for document in case.get("PodGroups") or ()],
        queues=[objects.queue(document) for document in case.get("Queues") or ()],
        priorities={one.name: one.value for one in classes},
        default_priority=next((one.value for one in classes if one.global_default), 0),
        claims=_things(case, "ResourceClaims"),
    )
    made.domains = domains(case)
    made.storage = _storage(case)
    made.inventory = DraInventory(
        classes=_things(case, "DeviceClasses"),
        slices=_things(case, "ResourceSlices"),
        claims=_things(case, "ResourceClaims"),
    )
    return made


def _storage(case: Document) -> Storage:
    """Claims, volumes and classes of a case; nobody binds claims to volumes there."""
    return Storage(claims=_things(case, "PVCs"), volumes=_things(case, "PVs"), classes=_things(case, "SCs"))


def _things(case: Document, key: str) -> dict[str, Any]:
    """The objects that a field of a case holds, by their own keys."""
    found = (decode_object(document, now=objects.LONG_AGO) for document in case.get(key) or ())
    return {thing.key: thing for thing in found if thing is not None}


def domains(case: Document) -> HyperNodeDomains:
    """The hyper nodes of a case; parents come from members of type HyperNode with exact names."""
    infos: dict[str, HyperNodeInfo] = {}
    for name, document in (case.get("HyperNodesMap") or {}).items():
        described = document.get("HyperNode")
        infos[name] = HyperNodeInfo(name, tier=document.get("tier") or 0)
        if described:
            infos[name] = HyperNodeInfo.from_object(objects.hyper_node({"metadata": {"name": name}, **described}))
    for info in infos.values():
        for member in info.members:
            if member.type == "HyperNode" and member.exact:
                info.children.add(member.exact)
                if member.exact in infos:
                    infos[member.exact].parent = info.name
    tiers = {int(tier): names for tier, names in (case.get("HyperNodesSetByTier") or {}).items()}
    return HyperNodeDomains(infos, case.get("HyperNodes"), case.get("HyperNodesTierNameMap"), by_tier=tiers)


def configuration(said: Document) -> VolcanoConfiguration:
    """Tiers, actions and their arguments as the case has them: a flag that is absent is false."""
    return VolcanoConfiguration(
        actions=tuple(said.get("actions") or ()),
        tiers=tuple(_tier(one.get("plugins") or ()) for one in said.get("tiers") or ()),
        arguments={one["name"]: VolcanoArguments(one.get("arguments")) for one in said.get("configurations") or ()},
    )


def _tier(options: Sequence[Document]) -> Tier:
    return tuple(
        VolcanoPluginOption(
            name=option["name"],
            enabled=frozenset(flag for key, flag in FLAGS.items() if option.get(key)),
            arguments=VolcanoArguments(option.get("arguments")),
        )
        for option in options
    )


def known_plugins(said: Document) -> dict[str, type[VolcanoPlugin]]:
    """The plugins that the case registers."""
    names = said.get("registeredPlugins")
    return {name: plugin for name, plugin in PLUGINS.items() if names is None or name in names}


def opened(said: Document, case: Document, extra: Mapping[str, type[VolcanoPlugin]] | None = None) -> VolcanoSession:
    """The session of a case, before any action."""
    session = VolcanoSession(configuration(said), cluster(case), plugins={**known_plugins(said), **(extra or {})})
    if case.get("NodesInShard"):
        session.sharding = Sharding(case.get("ShardingMode") or "")
        session.nodes_in_shard = frozenset(case["NodesInShard"])
    return session


def run(said: Document, case: Document, extra: Mapping[str, type[VolcanoPlugin]] | None = None) -> VolcanoSession:
    """The session of a case, after its actions."""
    session = opened(said, case, extra)
    act(session)
    return session


def act(session: VolcanoSession) -> None:
    """Take the actions of the case, in order, once each."""
    for name in session.configuration.actions:
        ACTIONS[name](session)


def settings(table: Table, case: Case) -> Document:
    """How the session of a case is opened."""
    said: Document = case.document.get("session") or table.document["sessionAllCases"]
    return said


def check(table: Table, case: Case) -> Sequence[str]:
    """Run a case, and say what CheckAll and its like find to differ."""
    return differences(table, run(settings(table, case), case.input), case)


def differences(table: Table, session: VolcanoSession, case: Case) -> Sequence[str]:
    """What the checks of a case find to differ."""
    return [text for name in settings(table, case).get("checks") or () for text in CHECKS_BY_NAME[name](session, case)]


def _check_all(session: VolcanoSession, case: Case) -> Iterator[str]:
    for part in (_check_bind, _check_evict, _check_pipelined, _check_statuses, _check_phases):
        yield from part(session, case)


def _check_bind(session: VolcanoSession, case: Case) -> Iterator[str]:
    yield from compare("binds", len(binds(session)), case.want.get("ExpectBindsNum", 0))
    if not case.want.get("MinimalBindCheck"):
        yield from compare("bound to", binds(session), case.want.get("ExpectBindMap") or {})


def _check_evict(session: VolcanoSession, case: Case) -> Iterator[str]:
    gone = Counter(evicted.task.key for evicted in session.evictions)
    yield from compare("evictions", len(session.evictions), case.want.get("ExpectEvictNum", 0))
    yield from compare("evicted", gone, Counter(case.want.get("ExpectEvicted") or ()))


def _check_pipelined(session: VolcanoSession, case: Case) -> Iterator[str]:
    for uid, nodes in (case.want.get("ExpectPipeLined") or {}).items():
        found = [task.node_name for task in session.jobs[uid].tasks.values() if task.status.label == "Pipelined"]
        if not found or not set(found) <= set(nodes):
            yield f"{uid} waits on {found}, wanted on {nodes}"


def _check_statuses(session: VolcanoSession, case: Case) -> Iterator[str]:
    for uid, counts in (case.want.get("ExpectTaskStatusNums") or {}).items():
        found = Counter(task.status.label for task in session.jobs[uid].tasks.values())
        yield from compare(f"tasks of {uid}", {name: found[name] for name in counts}, counts)


def _check_phases(session: VolcanoSession, case: Case) -> Iterator[str]:
    for uid, phase in (case.want.get("ExpectStatus") or {}).items():
        yield from compare(f"phase of {uid}", phase_of(session, session.jobs[uid]), phase)


def _check_domains(session: VolcanoSession, case: Case) -> Iterator[str]:
    yield from compare("binds", len(session.binds), case.want.get("ExpectBindsNum", 0))
    if case.want.get("MinimalBindCheck"):
        return
    counts = Counter(session.domains.lowest_domain_of(task.node_name) for task in session.binds)
    yield from compare("per hyper node", sorted(counts.values()), case.want.get("ExpectBindNumsInHyperNode") or [])


def binds(session: VolcanoSession) -> dict[str, str]:
    """Pod → node of what was bound: a pod whose claims have to be bound first waits for who does not run here."""
    return {task.key: task.node_name for task in session.binds if task.key not in session.assumed_volumes}


CHECKS_BY_NAME: Mapping[str, Callable[[VolcanoSession, Case], Iterator[str]]] = {
    "CheckAll": _check_all,
    "CheckBind": _check_bind,
    "CheckEvict": _check_evict,
    "CheckPipelined": _check_pipelined,
    "CheckTaskStatusNums": _check_statuses,
    "CheckPGStatus": _check_phases,
    "CheckBindInHyperNode": _check_domains,
}
