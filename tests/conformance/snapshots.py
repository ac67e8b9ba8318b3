"""cache_scheduler/TestSnapshot: the queues, quotas, usage and places that a scheduling cycle starts from."""

from collections.abc import Iterator, Mapping
from typing import Any

from gpuconsole.model.queues import ClusterQueue
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.pod_resources import TopologyUsage
from gpuconsole.scheduling.kueue.quota_tree import QuotaTree
from gpuconsole.scheduling.kueue.session import KueueSession
from tests.conformance import world
from tests.conformance.tables import Case, Check, Document, Table, compare


def check_snapshot(table: Table, case: Case) -> Iterator[str]:
    """TestSnapshot: what a cycle starts from. Objects come one by one, as the test adds them.

    Kueue's test leaves out what is private to the Manager, the ClusterQueues and cohorts in it; all of it is compared
    here but their generations, of which TestClusterQueueUpdate tells what the code really does.
    """
    given = case.input
    names = ("cqs", "cohorts", "rfs", "topologies", "wls", "nodes")
    session = KueueSession(KueueConfig(gates=case.gates))
    for document in [document for name in names for document in given.get(name) or ()]:
        thing = world.decode_workload(document) if document["kind"] == "Workload" else world.decode(document)
        session.apply(thing, 0)
        session.requeue_inadmissible(0)
    if "wantTASUsage" in case.want:
        yield from _places(session, given, case.want["wantTASUsage"])
        return
    want = case.want.get("wantSnapshot") or {}
    manager = want.get("Manager") or {}
    state = session._apply_noted_changes
    active = {name: rules for name, rules in state.setup.queues.items() if rules.active}
    yield from compare("queues", sorted(active), sorted(manager.get("clusterQueues") or {}))
    inactive = sorted(state.setup.queues.keys() - active.keys())
    yield from compare("inactive", inactive, sorted(want.get("InactiveClusterQueueSets") or []))
    yield from compare("cohorts", sorted(state.setup.tree.cohorts), sorted(manager.get("cohorts") or {}))
    flavors = {name: world.decode(document) for name, document in (want.get("ResourceFlavors") or {}).items()}
    yield from compare("flavors", dict(state.setup.flavors), flavors)
    for name, wanted in (manager.get("cohorts") or {}).items():
        yield from _node(session, state.setup.tree.cohorts.get(name, -1), wanted, f"cohort {name}")
    for name, wanted in (manager.get("clusterQueues") or {}).items():
        yield from _node(session, state.setup.tree.queues.get(name, -1), wanted, name)
        if name in active:
            yield from _queue(session, name, wanted)


def _queue(session: KueueSession, name: str, wanted: Document) -> Iterator[str]:
    state = session._apply_noted_changes
    queue = state.setup.queues[name].queue
    groups = [(sorted(g.covered_resources), [f.name for f in g.flavors]) for g in queue.resource_groups]
    listed = [(sorted(g["CoveredResources"]), g["Flavors"]) for g in wanted.get("ResourceGroups") or ()]
    yield from compare(f"groups of {name}", groups, listed)
    held = sorted(holding.key for holding in state.workload_index.holdings.get(name, {}).values())
    keys = sorted(_key(reference) for reference in wanted.get("Workloads") or {})
    yield from compare(f"workloads of {name}", held, keys)
    for holding in state.workload_index.holdings.get(name, {}).values():
        info = next(i for r, i in wanted["Workloads"].items() if _key(r) == holding.key)
        yield from compare(f"workload {holding.key}", holding.workload, world.decode_workload(info["Obj"]))
    given = {"kind": "ClusterQueue", "apiVersion": "kueue.x-k8s.io/v1beta2", "metadata": {"name": name}}
    spec = {"preemption": wanted.get("Preemption"), "flavorFungibility": wanted.get("FlavorFungibility")}
    same = world.decode({**given, "spec": spec})
    assert isinstance(same, ClusterQueue)
    yield from compare(f"preemption of {name}", queue.preemption, same.preemption)
    yield from compare(f"fungibility of {name}", queue.fungibility, same.fungibility)
    nothing = (wanted.get("NamespaceSelector") or {}).get("$type") == "labels.nothingSelector"
    yield from compare(f"selects nothing: {name}", queue.namespace_selector is None, nothing)
    yield from compare(f"status of {name}", "active", wanted.get("Status"))


def _key(reference: str) -> str:
    """A reference without a namespace is of `default`, as the objects are."""
    namespace, _, name = reference.rpartition("/")
    return f"{namespace or 'default'}/{name}"


def _node(session: KueueSession, node: int, wanted: Document, name: str) -> Iterator[str]:
    """Quotas, what they add up to, usage and weight of one node of the tree."""
    if node < 0:
        yield f"{name} is not in the tree"
        return
    state = session._apply_noted_changes
    tree, books = state.setup.tree, state.snapshot.usage
    resources = wanted.get("ResourceNode") or {}
    quotas = resources.get("Quotas") or {}
    yield from compare(f"weight of {name}", tree.weights[node], wanted.get("FairWeight", 0.0))
    for what, amounts in (("SubtreeQuota", tree.subtree), ("Usage", books.usage)):
        listed = {key: total for key, total in (resources.get(what) or {}).items() if total}
        yield from compare(f"{what} of {name}", _row(tree, amounts, node), listed)
    nominal = {key: quota["Nominal"] for key, quota in quotas.items() if quota.get("Nominal")}
    yield from compare(f"nominal quotas of {name}", _row(tree, tree.nominal, node), nominal)
    limits = {key: quota["BorrowingLimit"] for key, quota in quotas.items() if "BorrowingLimit" in quota}
    at = node * tree.width
    got = {"/".join(c): limit for c, n in tree.numbers.items() if (limit := tree.borrowing_limit[at + n]) is not None}
    yield from compare(f"borrowing limits of {name}", got, limits)
    subtree = resources.get("SubtreeQuota") or {}
    lending = {key: quota["LendingLimit"] for key, quota in quotas.items() if "LendingLimit" in quota}
    kept = {key: subtree[key] - limit for key, limit in lending.items() if subtree[key] > limit}
    yield from compare(f"what {name} never lends", _row(tree, tree.local, node), kept)


def _row(tree: QuotaTree, amounts: list[int], node: int) -> dict[str, int]:
    at = node * tree.width
    return {"/".join(column): amounts[at + n] for column, n in tree.numbers.items() if amounts[at + n]}


def _places(session: KueueSession, given: Document, wanted: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """What flavors that share nodes see of each other's pods."""
    for document in given.get("relabeledFlavors") or ():
        session.apply(world.decode(document), 0)
    state = session._apply_noted_changes
    state.snapshot.topology_usage.add_usage(
        TopologyUsage(flavor, tuple(used["Values"]), used["Count"], used["SinglePodRequests"])
        for flavor, listed in (given.get("tasFlavorUsage") or {}).items()
        for used in listed
    )
    sites = state.context().snapshot.topology_usage
    got = {}
    for flavor in wanted:
        used = {values: sites.used[flavor][leaf] for values, leaf in sites.topologies[flavor].leaves.items()}
        got[flavor] = {"".join(values): dict(amounts) for values, amounts in used.items() if amounts}
    yield from compare("wantTASUsage", got, {flavor: dict(usage) for flavor, usage in wanted.items()})


CHECKS: dict[str, Check] = {"cache_scheduler/TestSnapshot": lambda table, case: list(check_snapshot(table, case))}
