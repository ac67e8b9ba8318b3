"""cache_scheduler, cache_hierarchy: the quota tree, what is available in it, and who borrows how much."""

from collections.abc import Iterator, Mapping
from typing import Any

from gpuconsole.model.queues import ClusterQueue
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.pod_resources import Holding
from gpuconsole.scheduling.kueue.preemption.fair_sharing import DominantResourceShare, share_of, share_text
from gpuconsole.scheduling.kueue.quota_tree import UsageTree
from gpuconsole.scheduling.kueue.state import KueueState
from tests.conformance import world
from tests.conformance.tables import Case, Check, Document, Table, compare


def _books(documents: list[Any], usage: Mapping[str, Mapping[str, int]]) -> UsageTree:
    """A quota tree in which ClusterQueues use so much of `flavor/resource`."""
    state = world.state(KueueConfig(fair_sharing=True), world.decode_all(documents), 0)
    books = state.snapshot.usage
    _use(books, usage)
    return books


def _use(books: UsageTree, usage: Mapping[str, Mapping[str, int]]) -> None:
    for name, amounts in usage.items():
        books.add(books.tree.queues[name], [(books.tree.numbers[_column(k)], v) for k, v in amounts.items()])


def _column(key: str) -> tuple[str, str]:
    flavor, _, resource = key.partition("/")
    return flavor, resource


def check_available(table: Table, case: Case) -> Iterator[str]:
    """TestAvailable: what each ClusterQueue could take now, and at most."""
    given = case.input
    books = _books([*(given.get("cohorts") or ()), *given["clusterQueues"]], given.get("usage") or {})
    tree = books.tree
    for name, wanted in case.want["wantAvailable"].items():
        node = tree.queues[name]
        got = {key: max(0, books.available(node, tree.numbers[_column(key)])) for key in wanted}
        yield from compare(f"available to {name}", got, wanted)
    for name, wanted in case.want["wantPotentiallyAvailable"].items():
        at = tree.queues[name] * tree.width
        got = {key: tree.potential[at + tree.numbers[_column(key)]] for key in wanted}
        yield from compare(f"potentially available to {name}", got, wanted)


def check_share(table: Table, case: Case) -> Iterator[str]:
    """TestDominantResourceShare: the share of every node, with an extra request at each ClusterQueue or below."""
    given = case.input
    queues = [queue for queue in (given.get("clusterQueue"), given.get("lendingClusterQueue")) if queue]
    documents = [*(given.get("cohorts") or ()), *queues]
    books = _books(documents, {"cq": given.get("usage") or {}} if given.get("clusterQueue") else {})
    extra = [(books.tree.numbers[_column(k)], v) for k, v in (given.get("flvResQ") or {}).items()]
    got = {}
    for node, name in enumerate(books.tree.names):
        trial = books.copy()
        if extra:
            trial.add(node, extra)
        got[name, node < len(books.tree.cohorts)] = _result(trial, share_of(trial, node))
    listed = case.want["want"]
    wanted = {
        (e["Name"], bool(e.get("NodeType"))): (e.get("DrValue", 0), e.get("DrName", ""), bool(e.get("Borrowing")))
        for e in listed
    }
    yield from compare("shares", got, wanted)


def _result(books: UsageTree, found: DominantResourceShare) -> tuple[int, str, bool]:
    return found.rounded, found.dominant, bool(found.borrowed)


def check_borrowing(table: Table, case: Case) -> Iterator[str]:
    """TestIsBorrowingOn: does a ClusterQueue borrow, and does it borrow what is asked for?"""
    given = case.input
    variables = {**table.shared, **case.variables}
    documents = [variables[name] for name in ("lendingCQ", "cq") if name in variables]
    own = variables["cq"]["metadata"]["name"]
    books = _books(documents, {own: given.get("usage") or {}})
    found = share_of(books, books.tree.queues[own])
    asked = {books.tree.numbers[_column(key)] for key, amount in (given.get("requestedFRs") or {}).items() if amount}
    yield from compare("wantBorrowing", bool(found.borrowed), case.want["wantBorrowing"])
    on_requested = not asked.isdisjoint(found.borrowed)
    yield from compare("wantBorrowingOnRequested", on_requested, case.want["wantBorrowingOnRequested"])


def check_precise(table: Table, case: Case) -> Iterator[str]:
    """TestPreciseWeightedShareSerialized: the share as it is written."""
    given = case.input["drs"]
    found = DominantResourceShare(
        given.get("unweightedRatio", 0.0), given.get("fairWeight", 0.0), (0,) if given.get("borrowing") else ()
    )
    yield from compare("want", share_text(found), case.want["want"])


def check_snapshot(table: Table, case: Case) -> Iterator[str]:
    """TestSnapshotAddRemoveWorkload…: quotas and usage of every node after workloads left and came back."""
    fixtures = table.fixtures
    documents = [*(fixtures.get("flavors") or ()), *(fixtures.get("cohorts") or ()), *fixtures["clusterQueues"]]
    workloads = [world.decode_workload(document) for document in fixtures["workloads"]]
    state = world.state(KueueConfig(gates=case.gates), [*world.decode_all(documents), *workloads], 0)
    everyone = {
        record.workload.name: record for record in state.workload_index.all_queues() if isinstance(record, Holding)
    }
    for key in case.input.get("remove") or ():
        state.snapshot.remove_holding(everyone[key.split("/")[-1]])
    for key in case.input.get("add") or ():
        state.snapshot.add_holding(everyone[key.split("/")[-1]])
    manager = case.want["want"]["Manager"]
    yield from _nodes(state, manager.get("cohorts") or {}, state.setup.tree.cohorts)
    yield from _nodes(state, manager["clusterQueues"], state.setup.tree.queues)


def _nodes(state: KueueState, listed: Document, numbers: Mapping[str, int]) -> Iterator[str]:
    books, tree = state.snapshot.usage, state.setup.tree
    yield from compare("nodes", sorted(numbers), sorted(listed))
    for name, node in listed.items():
        at = numbers[name] * tree.width
        resources = node["ResourceNode"]
        for what, amounts, where in (("SubtreeQuota", tree.subtree, at), ("Usage", books.usage, at)):
            wanted = {key: amount for key, amount in (resources.get(what) or {}).items() if amount}
            got = {"/".join(c): amounts[where + n] for c, n in tree.numbers.items() if amounts[where + n]}
            yield from compare(f"{what} of {name}", got, wanted)


def check_ancestors(table: Table, case: Case) -> Iterator[str]:
    """TestAncestors, TestClusterQueueAncestors, TestWorkloadAncestors: the cohorts above; a circle has none.

    A cohort's list begins with itself, a ClusterQueue's ends before the root, a workload's with it.
    """
    given = case.input
    queues = [*(given.get("cqs") or ()), *([given["cq"]] if given.get("cq") else ())]
    documents = [*(given.get("cohorts") or ()), *queues]
    things = world.decode_all(documents)
    cohorts = {thing.name: thing.cohort for thing in things if isinstance(thing, ClusterQueue)}
    if "wl" in given:
        start = cohorts.get(((given["wl"].get("status") or {}).get("admission") or {}).get("clusterQueue", ""), "")
    else:
        start = given.get("cohortName") or next(iter(cohorts.values()), "")
    tree = world.state(KueueConfig(), things, 0).setup.tree
    yield from compare("wantErr", start in tree.in_cycle, bool(case.want.get("wantErr")))
    names: list[str] = []
    if start in tree.cohorts:
        names = [start, *(tree.names[node] for node in tree.paths[tree.cohorts[start]])]
    if table.name.endswith("/TestClusterQueueAncestors"):
        names = names[:-1]
    yield from compare("wantAncestors", names, case.want.get("wantAncestors") or [])


CHECKS: dict[str, Check] = {
    "cache_scheduler/TestAncestors": lambda table, case: list(check_ancestors(table, case)),
    "cache_scheduler/TestClusterQueueAncestors": lambda table, case: list(check_ancestors(table, case)),
    "cache_scheduler/TestWorkloadAncestors": lambda table, case: list(check_ancestors(table, case)),
    "cache_scheduler/TestAvailable": lambda table, case: list(check_available(table, case)),
    "cache_scheduler/TestDominantResourceShare": lambda table, case: list(check_share(table, case)),
    "cache_scheduler/TestIsBorrowingOn": lambda table, case: list(check_borrowing(table, case)),
    "cache_scheduler/TestPreciseWeightedShareSerialized": lambda table, case: list(check_precise(table, case)),
    "cache_scheduler/TestSnapshotAddRemoveWorkload": lambda table, case: list(check_snapshot(table, case)),
    "cache_scheduler/TestSnapshotAddRemoveWorkloadWithLendingLimit": lambda table, case: list(
        check_snapshot(table, case)
    ),
}
