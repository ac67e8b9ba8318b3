"""A shadow says of each decision of Kueue whether the engine decides the same, and on which state."""

from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from gpuconsole.backends.kube.recording import ClusterRecording, RecordedChange
from gpuconsole.insight.forecast import shadow as module
from gpuconsole.insight.forecast.agreement import (
    AgreementCounts,
    DecisionKind,
    DisagreementCause,
    ShadowReport,
    StateOrigin,
)
from gpuconsole.insight.forecast.shadow import Shadow
from gpuconsole.model.clock import SECOND, Time
from gpuconsole.model.cluster import Namespace, Pod
from gpuconsole.model.events import Applied, PreemptionRule
from gpuconsole.model.objects import TABLES, Object
from gpuconsole.model.queues import LocalQueue, PreemptionPolicy, ResourceFlavor
from gpuconsole.model.workloads import Admission, PodSetAssignment, Workload
from gpuconsole.scheduling.kueue import conditions
from gpuconsole.scheduling.kueue.config import KueueConfig
from tests.support.kueue_cluster import GPU, pods, queue, workload
from tests.support.shared_material import CONFORMANCE

LIVE = (CONFORMANCE or Path()) / "live"
BEGIN: Time = 1_000 * SECOND
CLUSTER = (
    Namespace(name="team"),
    ResourceFlavor(name="f"),
    ResourceFlavor(name="g"),
    queue("q", {"f": 8, "g": 8}),
    LocalQueue(namespace="team", name="q", cluster_queue="q"),
)


def shadow(*more: Object) -> Shadow:
    return Shadow(KueueConfig(), (*CLUSTER, *more), BEGIN)


def reserved(one: Workload, flavor: str, gpus: int, now: Time) -> Workload:
    part = PodSetAssignment(name="main", flavors={GPU: flavor}, usage={GPU: gpus}, count=1)
    return conditions.reserve_quota(one, Admission(cluster_queue="q", pod_sets=(part,)), now)


def refused(one: Workload, message: str, now: Time) -> Workload:
    return conditions.set_pending_reason(one, "Pending", message, now)


def followed(subject: Shadow, changes: Iterable[tuple[float, Workload]]) -> ShadowReport:
    """The report after changes at these seconds since the begin."""
    for at, one in changes:
        now = BEGIN + int(at * SECOND)
        subject.follow(Applied(now, one), now)
    return subject.report


def test_a_reservation_that_the_engine_makes_too_agrees_on_the_state_just_before() -> None:
    one = workload("a", "q", 8, created=1_001)
    report = followed(shadow(), [(1, one), (1.1, reserved(one, "f", 8, BEGIN + SECOND))])
    assert report.counts == AgreementCounts(decisions=1, agreed=1)
    assert report.states == {StateOrigin.CURRENT: 1}
    assert report.known_since == BEGIN


def test_a_reservation_of_another_flavor_is_a_disagreement_that_names_both() -> None:
    one = workload("a", "q", 8, created=1_001)
    report = followed(shadow(), [(1, one), (1.1, reserved(one, "g", 8, BEGIN + SECOND))])
    (found,) = report.disagreements
    assert (found.workload, found.queue, found.kind) == ("team/a", "q", DecisionKind.RESERVED)
    assert found.expected == f"reserves quota: main×1 {GPU}=f"
    assert found.actual == f"reserves quota: main×1 {GPU}=g"
    assert found.cause is DisagreementCause.OTHER_FLAVORS
    assert report.counts == AgreementCounts(decisions=1)
    assert report.causes == {DisagreementCause.OTHER_FLAVORS: 1}


def test_a_reservation_that_the_engine_refuses_is_a_disagreement_with_its_arithmetic() -> None:
    one = workload("a", "q", pod_sets=(pods(1, 9),), created=1_001)
    report = followed(shadow(), [(1, one), (1.1, reserved(one, "f", 9, BEGIN + SECOND))])
    (found,) = report.disagreements
    assert found.cause is DisagreementCause.NOT_RESERVED
    assert "in flavor f" in found.expected
    assert "maximum capacity (8)" in found.expected


def test_a_refusal_of_a_workload_that_fits_is_a_disagreement() -> None:
    one = workload("a", "q", 8, created=1_001)
    report = followed(shadow(), [(1, one), (1.1, refused(one, "couldn't assign flavors to pod set main", BEGIN))])
    assert [found.cause for found in report.disagreements] == [DisagreementCause.NOT_REFUSED]


PREEMPTING = queue("q", {"f": 8}, within=PreemptionPolicy.LOWER_PRIORITY)


@pytest.mark.parametrize(
    ("by", "counts", "causes"),
    [
        ("uid-high", AgreementCounts(decisions=1, agreed=1), {}),
        ("uid-other", AgreementCounts(decisions=1), {DisagreementCause.OTHER_PREEMPTOR: 1}),
    ],
)
def test_a_preemption_agrees_if_the_preemptor_and_the_rule_are_the_same(
    by: str, counts: AgreementCounts, causes: dict[DisagreementCause, int]
) -> None:
    low = conditions.sync_admitted(reserved(workload("low", "q", 8, created=900), "f", 8, BEGIN - SECOND), BEGIN)
    high = workload("high", "q", 8, created=1_001, priority=9)
    message = f"Preempted to accommodate a workload (UID: {by}) due to prioritization in the ClusterQueue"
    evicted = conditions.mark_evicted(low, "Preempted", message, BEGIN + SECOND, PreemptionRule.IN_CLUSTER_QUEUE)
    report = followed(shadow(PREEMPTING, low), [(1, high), (1.1, evicted)])
    assert (report.counts, report.causes) == (counts, causes)
    assert [one.expected for one in report.disagreements] == ["preempted by team/high (InClusterQueue)"] * len(causes)


def test_only_the_changes_of_the_last_second_are_kept() -> None:
    subject = shadow()
    for number in range(3_000):
        now = BEGIN + number * SECOND // 1_000
        subject.follow(Applied(now, Pod(namespace="team", name=f"p-{number % 5}")), now)
    assert sum(len(kept.events) for kept in subject._states._checkpoints) <= 2_000


def test_a_decision_on_the_state_before_the_newest_change_agrees_with_that_state() -> None:
    first = workload("first", "q", 16, created=1_001, pod_sets=(pods(2, 8),))
    later = workload("later", "q", 16, created=1_001, priority=9, pod_sets=(pods(2, 8),))
    only = queue("q", {"f": 16})
    part = PodSetAssignment(name="main", flavors={GPU: "f"}, usage={GPU: 16}, count=2)
    decided = conditions.reserve_quota(first, Admission(cluster_queue="q", pod_sets=(part,)), BEGIN + SECOND)
    report = followed(shadow(only), [(1, first), (1.05, later), (1.1, decided)])
    assert report.states == {StateOrigin.EARLIER: 1}
    late = followed(shadow(only), [(1, first), (1.05, later), (2.2, decided)])
    assert late.counts.disagreed + late.states.get(StateOrigin.QUEUES, 0) == 1
    assert StateOrigin.EARLIER not in late.states


def test_without_history_a_decision_that_nothing_explains_is_unknown() -> None:
    old = refused(workload("old", "q", 20, created=900), "couldn't assign flavors to pod set main: 12", BEGIN - SECOND)
    one = workload("a", "q", 8, created=1_001)
    report = followed(shadow(old), [(1, one), (1.1, reserved(one, "g", 8, BEGIN + SECOND))])
    assert report.counts == AgreementCounts(decisions=1, unknown=1)
    assert (report.without_history, report.known_since) == (1, None)
    assert report.disagreements == ()


def test_decisions_for_whose_search_there_is_no_time_are_unknown_until_there_is_time_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MOST_COST", 400)
    monkeypatch.setattr(module, "COST_PER_SECOND", 10)
    costs: list[float] = []
    charge = module._SearchBudget.charge

    def counted(budget: module._SearchBudget, cost: float) -> None:
        costs.append(cost)
        charge(budget, cost)

    monkeypatch.setattr(module._SearchBudget, "charge", counted)
    subject = shadow()
    wrong = "couldn't assign flavors to pod set main"

    def refuse(names: Iterable[int], at: float) -> AgreementCounts:
        """Refuse workloads that fit, which nothing explains."""
        changes = [(at, workload(f"w-{name}", "q", 1, created=1_001)) for name in names]
        return followed(subject, [*changes, *((at + 0.1, refused(one, wrong, BEGIN)) for _, one in changes)]).counts

    burst = refuse(range(20), 1)
    assert burst.decisions == burst.disagreed + burst.unknown == 20
    assert 0 < burst.disagreed < burst.unknown
    assert sum(costs) <= 400 + 0.1 * 10 + max(costs)
    assert refuse([20], 90) == burst + AgreementCounts(decisions=1)


def test_the_agreement_is_that_of_the_known_decisions() -> None:
    counts = AgreementCounts(decisions=10, agreed=6, unknown=2)
    assert (counts.known, counts.disagreed, counts.agreement) == (8, 2, 0.75)
    assert (str(counts), counts.is_good) == ("75.0%", False)
    assert AgreementCounts().agreement == 1.0
    almost = AgreementCounts(decisions=10_000, agreed=9_999)
    assert (str(almost), almost.is_good) == ("99.9%", True)


def replayed(name: str, config: KueueConfig) -> ShadowReport:
    recording = ClusterRecording(LIVE / name)
    subject = Shadow(config, recording.objects(), recording.begin)
    for change in recording.changes():
        subject.follow(change.event, change.time)
    return subject.report


@pytest.mark.skipif(not LIVE.is_dir(), reason="no recordings beside the project: they were not replayed")
@pytest.mark.parametrize("name", ["classical.jsonl.gz", "fair.jsonl.gz"])
def test_the_engine_agrees_with_the_recorded_kueue(name: str) -> None:
    fair = ClusterRecording(LIVE / name).has_fair_sharing
    assert fair == name.startswith("fair")
    report = replayed(name, KueueConfig(fair_sharing=fair, wait_for_pods_ready=None))
    assert report.counts.agreement >= 0.99
    assert report.counts.unknown <= 0.1 * report.counts.decisions


@pytest.mark.skipif(not LIVE.is_dir(), reason="no recordings beside the project: they were not replayed")
def test_an_engine_with_another_configuration_does_not_agree() -> None:
    report = replayed("classical.jsonl.gz", KueueConfig(fair_sharing=True, wait_for_pods_ready=None))
    assert report.counts.agreement < 0.95
    preempted = report.kinds[DecisionKind.PREEMPTED]
    assert preempted.agreed < 0.75 * preempted.decisions


class Life(NamedTuple):
    """A recorded cluster, and the disagreements that a shadow of it finds from its begin on."""

    config: KueueConfig
    objects: list[Object]
    begin: Time
    changes: list[RecordedChange]
    disagreements: set[tuple[object, ...]]

    def shadow_from(self, number: int) -> Shadow:
        """A shadow that begins before this change, with the objects of that moment."""
        state = {(TABLES[type(one)], one.key): one for one in self.objects}
        for _, event in self.changes[:number]:
            if isinstance(event, Applied):
                state[event.table, event.key] = event.object
            else:
                state.pop((event.table, event.key), None)
        return Shadow(self.config, state.values(), self.changes[number - 1].time if number else self.begin)


def disagreements(report: ShadowReport) -> set[tuple[object, ...]]:
    return {(one.time, one.workload, one.kind, one.actual) for one in report.disagreements}


@pytest.fixture(scope="module", params=[("classical.jsonl.gz", 2_500), ("fair.jsonl.gz", 2_000)])
def life(request: pytest.FixtureRequest) -> Life:
    """The first changes of a recording."""
    if not LIVE.is_dir():
        pytest.skip("no recordings beside the project: no shadow was begun in the middle of one")
    name, most = request.param
    recording = ClusterRecording(LIVE / name)
    config = KueueConfig(fair_sharing=recording.has_fair_sharing, wait_for_pods_ready=None)
    made = Life(config, recording.objects(), recording.begin, list(islice(recording.changes(), most)), set())
    whole = made.shadow_from(0)
    for change in made.changes:
        whole.follow(change.event, change.time)
    return made._replace(disagreements=disagreements(whole.report))


@given(share=st.floats(0, 1))
@settings(max_examples=4, deadline=None, phases=[Phase.generate])
def test_a_shadow_begun_in_the_middle_finds_no_disagreement_that_one_from_the_begin_does_not(
    life: Life, share: float
) -> None:
    number = int(share * len(life.changes))
    late = life.shadow_from(number)
    for change in life.changes[number : number + 400]:
        late.follow(change.event, change.time)
    report = late.report
    assert disagreements(report) <= life.disagreements
    assert (report.known_since is None) == (report.without_history > 0)
    assert not report.counts.unknown or report.known_since != report.since, "all of the past is known"
