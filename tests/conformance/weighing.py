"""scheduler_preemption: what the log tells of fair sharing's strategies (Kueue's at verbosity 4, ours at DEBUG)."""

import logging
from collections.abc import Iterator, Mapping, Sequence

from gpuconsole.model.objects import Object
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.pod_resources import Holding
from gpuconsole.scheduling.kueue.preemption import PreemptionSearch, find_targets
from gpuconsole.scheduling.kueue.preemption.fair_sharing import (
    LOGGER,
    DominantResourceShare,
    FairPreemption,
    LogRecord,
    ShareComparison,
)
from gpuconsole.scheduling.kueue.state import KueueState
from tests.conformance import world
from tests.conformance.preemption import assignment_of, search_of
from tests.conformance.tables import Case, Check, Document, Table, compare

_NOW = "2026-01-01T00:00:00Z"
_LISTED = {"PodSets": [{"Flavors": {"cpu": {"Name": "default", "Mode": "Preempt"}}}]}


class _Kept(logging.Handler):
    """Keeps what is told while it is open, at a verbosity as Kueue counts it: 4 is DEBUG."""

    def __init__(self, verbosity: int) -> None:
        super().__init__()
        self.told: list[LogRecord] = []
        self._level = logging.DEBUG if verbosity >= 4 else logging.INFO

    def emit(self, record: logging.LogRecord) -> None:
        assert isinstance(record.args, tuple)
        assert isinstance(record.args[0], LogRecord)
        self.told.append(record.args[0])

    def __enter__(self) -> "_Kept":
        self._before = LOGGER.level, LOGGER.propagate
        LOGGER.setLevel(self._level)
        LOGGER.propagate = False
        LOGGER.addHandler(self)
        return self

    def __exit__(self, *problem: object) -> None:
        LOGGER.removeHandler(self)
        LOGGER.level, LOGGER.propagate = self._before


def _queue(name: str, weight: str | None, preemption: Document | None = None) -> Document:
    quotas = [{"name": "default", "resources": [{"name": "cpu", "nominalQuota": "1"}]}]
    spec = {
        "cohortName": "all",
        "namespaceSelector": {},
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": quotas}],
        **({"fairSharing": {"weight": weight}} if weight is not None else {}),
        **({"preemption": preemption} if preemption else {}),
    }
    return {"kind": "ClusterQueue", "apiVersion": "kueue.x-k8s.io/v1beta2", "metadata": {"name": name}, "spec": spec}


def _workload(name: str, cpu: str, queue: str = "") -> Document:
    pods = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    document: dict[str, Document] = {
        "metadata": {"name": name, "uid": name},
        "spec": {"podSets": [{"name": "main", "count": 1, "template": {"spec": {"containers": [pods]}}}]},
    }
    if queue:
        given = {"name": "main", "count": 1, "flavors": {"cpu": "default"}, "resourceUsage": {"cpu": cpu}}
        reserved = {"type": "QuotaReserved", "status": "True", "reason": "Test", "lastTransitionTime": _NOW}
        admission = {"clusterQueue": queue, "podSetAssignments": [given]}
        document["status"] = {"conditions": [reserved], "admission": admission}
    return document


def _search(queues: Sequence[Document], held: Sequence[Document], cpu: str) -> tuple[KueueState, PreemptionSearch]:
    """What these tables' Go code builds: a preemptor in ClusterQueue a, and those that hold quota."""
    flavor = {"kind": "ResourceFlavor", "apiVersion": "kueue.x-k8s.io/v1beta2", "metadata": {"name": "default"}}
    things: list[Object] = [*world.decode_all([flavor, *queues]), *map(world.decode_workload, held)]
    state = world.state(KueueConfig(fair_sharing=True), things, world.clock(_NOW))
    incoming = world.decode_workload(_workload("a-incoming", cpu))
    return state, search_of(state, "a", incoming, assignment_of(state, incoming, "a", _LISTED))


def _fixture(listed: Sequence[Document]) -> tuple[PreemptionSearch, list[Holding]]:
    """A preemptor that wants 3 CPU, and ClusterQueues with workloads of 1 CPU each, as candidates in order."""
    queues = [_queue("a", None), *(_queue(cq["name"], cq.get("fairWeight")) for cq in listed)]
    held = [
        _workload(f"{cq['name']}-{number}", "1", cq["name"])
        for cq in listed
        for number in range(1, cq["candidates"] + 1)
    ]
    state, search = _search(queues, held, "3")
    search.usage.add(search.rules.node, search.requested)
    known = {
        holding.workload.name: holding
        for cq in listed
        for holding in state.workload_index.holdings_in_preemption_order(cq["name"])
    }
    return search, [known[document["metadata"]["name"]] for document in held]


class _Scripted(FairPreemption):
    """A first strategy that lets nobody go but the n-th that it judges; 0 is nobody."""

    def __init__(self, search: PreemptionSearch, candidates: list[Holding], passing: int) -> None:
        super().__init__(search, candidates)
        self._passing = passing
        self._seen = 0

    def _strategy_allows(
        self, mine: DominantResourceShare, theirs: DominantResourceShare, after: DominantResourceShare
    ) -> bool:
        self._seen += 1
        return self._seen == self._passing

    @property
    def spared(self) -> list[Holding]:
        return self._skipped


def check_first(table: Table, case: Case) -> Iterator[str]:
    """TestRunFirstFsStrategyLogging: one record for each ClusterQueue, with all that was judged there."""
    given, want = case.input, case.want
    search, candidates = _fixture(given["cqs"])
    with _Kept(given["enabledUpToV"]) as kept:
        trade = _Scripted(search, candidates, given["passOnEvaluation"])
        fits = trade.first_strategy()
    yield from compare("wantEntries", len(kept.told), want["wantEntries"])
    if want.get("wantAllRejected"):
        yield from compare("fits", fits, False)
        yield from compare("targets", trade.targets, [])
        yield from compare("spared", len(trade.spared), len(candidates))
    if want.get("wantEvaluationsByCQ"):
        yield from compare("evaluations", _by_queue(kept.told), want["wantEvaluationsByCQ"])
        yield from compare("nobody passed", [judged for judged in _all(kept.told) if judged.is_allowed], [])
    if want.get("wantStrategyPassed"):
        got = [judged.is_allowed for judged in _all(kept.told)]
        yield from compare("wantStrategyPassed", got, want["wantStrategyPassed"])
    if want.get("wantDRSJSONStrings"):
        yield from compare("wantTargetOldShare", {w.target_share for w in kept.told}, {want["wantTargetOldShare"]})
        yield from compare("wantTargetNewShare", {j.share for j in _all(kept.told)}, {want["wantTargetNewShare"]})
        yield from compare("preemptorNewShare", all(w.preemptor_share for w in kept.told), True)
    if want.get("wantNoLog") or want.get("wantNoArrayBuilt"):
        yield from compare("told", kept.told, [])


def _by_queue(told: Sequence[LogRecord]) -> Mapping[str, int]:
    return {weighed.queue: len(weighed.comparisons) for weighed in told}


def _all(told: Sequence[LogRecord]) -> list[ShareComparison]:
    return [judged for weighed in told for judged in weighed.comparisons]


def check_second(table: Table, case: Case) -> Iterator[str]:
    """TestRunSecondFsStrategyLog: how the second strategy writes shares."""
    search, candidates = _fixture([{"name": "b", "candidates": 3, "fairWeight": case.input.get("fairWeight")}])
    with _Kept(4) as kept:
        trade = _Scripted(search, candidates, 0)
        trade.first_strategy()
        before = len(kept.told)
        trade.second_strategy()
    told = kept.told[before:]
    yield from compare("second", [weighed.is_second_strategy for weighed in told[:1]], [True])
    yield from compare("wantTargetOldShare", told[0].target_share, case.want["wantTargetOldShare"])
    yield from compare("preemptorNewShare", bool(told[0].preemptor_share), True)


def check_hopeless(table: Table, case: Case) -> Iterator[str]:
    """TestFairPreemptionSkipsUnsatisfiableTournament: what nobody could pass is not judged one by one."""
    queues = [
        _queue("a", case.input["preemptorFairWeight"], {"reclaimWithinCohort": "Any"}),
        _queue("b", "1"),
    ]
    held = [_workload("a1", "1", "a"), _workload("b1", "1", "b"), _workload("b2", "1", "b")]
    _, search = _search(queues, held, "1")
    with _Kept(4) as kept:
        targets = find_targets(search)
    yield from compare("targets", list(targets), [])
    first = [weighed for weighed in kept.told if weighed.comparisons]
    skipped = [weighed for weighed in kept.told if not weighed.comparisons and not weighed.is_second_strategy]
    second = [weighed for weighed in kept.told if weighed.is_second_strategy]
    yield from compare("wantFirstStrategyEvals", len(first), case.want["wantFirstStrategyEvals"])
    yield from compare("wantSecondStrategyEvals", len(second), case.want["wantSecondStrategyEvals"])
    yield from compare("wantSkippedQueues", len(skipped), case.want["wantSkippedQueues"])


CHECKS: dict[str, Check] = {
    "scheduler_preemption/TestRunFirstFsStrategyLogging": lambda table, case: list(check_first(table, case)),
    "scheduler_preemption/TestRunSecondFsStrategyLog": lambda table, case: list(check_second(table, case)),
    "scheduler_preemption/TestFairPreemptionSkipsUnsatisfiableTournament": lambda table, case: list(
        check_hopeless(table, case)
    ),
}
