"""What-ifs on the drill org-cohort: two futures of one simulation, and only the commands make the difference."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpuconsole.cli.whatif import as_text
from gpuconsole.insight.cost.rates import node_hourly, nodes_hourly
from gpuconsole.insight.index.demand import admitted_since
from gpuconsole.insight.index.fragmentation import gang_limits, largest
from gpuconsole.insight.index.gpu_map import GpuMapIndex, GpuState, gpu_rows
from gpuconsole.insight.index.pods import NO_PODS_BY_NODE, pods_by_node, updated
from gpuconsole.insight.overview import gpu_totals
from gpuconsole.insight.pending.reasons import PendingReason
from gpuconsole.insight.whatif.futures import FutureEvents, subjects_of
from gpuconsole.insight.whatif.whatif import (
    FEASIBLE,
    QueueChange,
    StartShift,
    WhatIf,
    WhatIfEviction,
    WhatIfOutcome,
    what_if_steps,
)
from gpuconsole.model.clock import HOUR, MINUTE, SECOND, Span
from gpuconsole.model.commands import (
    AnswerCheck,
    Command,
    Cordon,
    Delete,
    Drain,
    FailNode,
    FailPod,
    Later,
    Reconfigure,
    Requeue,
    RestoreNode,
    SetActive,
    SetCohort,
    SetPreemption,
    SetPriority,
    SetQuota,
    SetStopPolicy,
    SetTaint,
    SetWeight,
    Submit,
)
from gpuconsole.model.cooperative import complete_answer
from gpuconsole.model.events import HistoryEvent, HistoryEventKind, PreemptionRule
from gpuconsole.model.job import BatchRules, Job
from gpuconsole.model.objects import Object
from gpuconsole.model.pod_template import Container, PodSet, PodTemplate
from gpuconsole.model.resources import GPU
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import SimPolicy
from tests.support.random_simulations import LIVES, Deed, cluster, live
from tests.support.sim_cluster import workload
from tests.support.snapshots import ORG_QUEUES, START, node, waiting, world

NOW = START + 30 * MINUTE


def job(name: str, queue: str, gpus: int, priority: int, duration: str = "10h") -> Workload:
    return waiting(name, queue, gpus, priority=priority, annotations={"gpuconsole.io/duration": duration})


def org_cohort(*more: Workload) -> Simulation:
    """llm-ft 4 and embed 2 in research, serve 8 in prod, then rlhf 6, a minute apart; half an hour has passed."""
    objects = [*ORG_QUEUES, node("node-1"), node("node-2"), node("node-3")]
    simulation = Simulation.from_objects(objects, policy=SimPolicy(), seed=1, start=START)
    arrivals = (
        job("llm-ft", "research/lq", 4, 500),
        job("embed", "research/lq", 2, 500),
        job("serve", "prod/lq", 8, 10_000, "45m"),
        job("rlhf", "research/lq", 6, 500),
        *more,
    )
    for minute, arrival in enumerate(arrivals, start=1):
        simulation.advance(START + minute * MINUTE)
        simulation.submit(Submit((msgspec.structs.replace(arrival, created=simulation.now),)))
    simulation.advance(NOW)
    return simulation


SERVE_2 = job("serve-2", "prod/lq", 8, 10_000)


def ask(*commands: Command, horizon: Span = HOUR, base: Simulation | None = None) -> WhatIf:
    return complete_answer(what_if_steps(base or org_cohort(), commands, horizon))


def test_now_is_the_cluster_of_others_as_it_was_found_not_after_what_our_engine_would_do_first() -> None:
    found = world([*ORG_QUEUES, node("node-1"), job("serve", "prod/lq", 8, 10_000)])
    base = Simulation.from_snapshot(found, policy=SimPolicy(), seed=0)
    less = (SetQuota("cq-prod", "a100", GPU, 12, 0, None),)
    answer = complete_answer(what_if_steps(base, less, HOUR, found=found))
    prod = next(change for change in answer.queues if change.queue == "cq-prod")
    assert (prod.used_now, prod.nominal_now) == (0, 16)
    assert (prod.used_without, prod.used, prod.nominal) == (8, 8, 12)
    assert (answer.gpus_now, answer.gpus_without, answer.gpus) == (0, 8, 8)


def test_what_was_asked_for_and_is_gone_before_the_horizon_is_told_on_either_side() -> None:
    small = job("small", "prod/lq", 2, 10_000)
    asked = (Later(MINUTE, Submit((small,))), Later(5 * MINUTE, Delete("workloads", small.key)))
    one = complete_answer(what_if_steps(org_cohort(), asked, 10 * MINUTE))
    other = complete_answer(what_if_steps(org_cohort(), (), 10 * MINUTE, against=asked))
    told = [("prod/small", NOW + MINUTE, True)]
    assert [(found.workload, found.admitted, found.new) for found in one.outcomes] == told
    assert [(found.workload, found.admitted, found.new) for found in other.against] == told
    assert (one.shifts, other.shifts) == ((), ())
    assert complete_answer(what_if_steps(org_cohort(), asked, 10 * MINUTE, against=asked)).empty


def test_what_ran_before_and_ends_in_both_futures_is_not_new() -> None:
    served = "prod/serve"
    asked = (SetPriority(served, 20_000), Later(MINUTE, Delete("workloads", served)))
    found = complete_answer(what_if_steps(org_cohort(), asked, HOUR, against=asked[1:])).outcomes
    assert [(outcome.workload, outcome.new) for outcome in found] == [(served, False)]


def test_prod_asks_for_its_quota_and_rlhf_alone_has_to_go_until_serve_ends() -> None:
    base = org_cohort()
    before = (base.now, base.snapshot().workloads["research/rlhf"])
    answer = ask(Submit((SERVE_2,)), base=base)

    assert answer == WhatIf(
        time=NOW,
        compared=NOW + 30 * SECOND,
        horizon=NOW + HOUR,
        refused=(),
        outcomes=(
            WhatIfOutcome(
                workload="prod/serve-2",
                queue="cq-prod",
                gpus=8,
                priority=10_000,
                admitted=NOW + 30 * SECOND,
                started=NOW + 30 * SECOND,
                flavors=("a100",),
                nodes=("node-3",),
                code=PendingReason.NOT_WAITING,
                why=FEASIBLE,
                text="",
            ),
        ),
        evictions=(
            WhatIfEviction(
                time=NOW,
                workload="research/rlhf",
                queue="cq-research",
                gpus=6,
                priority=500,
                by="prod/serve-2",
                by_priority=10_000,
                rule="reclaim in cohort",
                lost_gpu_hours=26 * 6 / 60,
                cost=pytest.approx(26 * 6 / 60 * 2.21),  # type: ignore[arg-type]
                returns=START + 48 * MINUTE + SECOND,
                released=NOW + 30 * SECOND,
                pods_gone=NOW + 30 * SECOND,
            ),
        ),
        evictions_without=(),
        subjects=("prod/serve-2",),
        only_work=True,
        shifts=(),
        queues=(
            QueueChange(
                queue="cq-prod",
                used_now=8,
                used_without=8,
                used=16,
                nominal_now=16,
                nominal=16,
                borrowed_now=0,
                borrowed_without=0,
                borrowed=0,
                share_now=50.0,
                share_without=50.0,
                share=100.0,
            ),
            QueueChange(
                queue="cq-research",
                used_now=12,
                used_without=12,
                used=6,
                nominal_now=8,
                nominal=8,
                borrowed_now=4,
                borrowed_without=4,
                borrowed=0,
                share_now=75.0,
                share_without=75.0,
                share=37.5,
            ),
        ),
        gpus_total=24,
        gpus_now=20,
        gpus_without=20,
        gpus=22,
        median_wait_without=None,
        median_wait=answer.median_wait,
        lost_gpu_hours_without=0.0,
        lost_gpu_hours=26 * 6 / 60,
        cost_without=0.0,
        cost=pytest.approx(26 * 6 / 60 * 2.21),  # type: ignore[arg-type]
        p95_wait=answer.p95_wait,
        # serve ends after 18 minutes; rlhf leaves for 30 seconds and comes back when serve is gone.
        gpu_hours_without=pytest.approx((20 * 18 + 12 * 42) / 60),  # type: ignore[arg-type]
        gpu_hours=pytest.approx((20 * 30 + 22 * 1050 + 14 * 1 + 20 * 2519) / 3600),  # type: ignore[arg-type]
        capacity_hours_without=pytest.approx(24),  # type: ignore[arg-type]
        capacity_hours=pytest.approx(24),  # type: ignore[arg-type]
        gpus_total_without=24,
        gpus_total_with=24,
        hourly_without=pytest.approx(24 * 2.21),  # type: ignore[arg-type]
        hourly=pytest.approx(24 * 2.21),  # type: ignore[arg-type]
        fairness_without=pytest.approx(125**2 / (2 * (50**2 + 75**2))),  # type: ignore[arg-type]
        fairness=pytest.approx(137.5**2 / (2 * (100**2 + 37.5**2))),  # type: ignore[arg-type]
    )
    assert (base.now, base.snapshot().workloads["research/rlhf"]) == before
    assert not answer.empty


NOTHING: dict[str, tuple[Command, ...]] = {
    "no command": (),
    "the same quota": (SetQuota("cq-prod", "a100", GPU, 16, 0, None),),
    "uncordon what is not cordoned": (Cordon("node-1", False),),
}


@pytest.mark.parametrize("commands", NOTHING.values(), ids=NOTHING.keys())
def test_a_change_that_changes_nothing_makes_no_difference(commands: tuple[Command, ...]) -> None:
    answer = ask(*commands)

    # Both futures are compared at the horizon, when serve is done.
    assert (answer.empty, answer.evictions, answer.queues, answer.gpus_now, answer.gpus) == (True, (), (), 20, 12)


def test_what_happens_anyway_is_no_difference() -> None:
    """batch has rlhf evicted when serve ends, with the commands and without."""
    answer = ask(Cordon("node-1", False), base=org_cohort(job("batch", "prod/lq", 16, 0)))

    assert (answer.empty, answer.lost_gpu_hours > 0) == (True, True)


def test_a_job_that_does_not_fit_says_why() -> None:
    big = Job(
        namespace="prod",
        name="big",
        queue="lq",
        created=NOW,
        duration=HOUR,
        pod_sets=(PodSet(count=3, template=PodTemplate(containers=(Container(requests={GPU: 8}),))),),
    )
    outcome = ask(Submit((big,))).outcomes[0]

    assert (outcome.admitted, outcome.code, outcome.nodes) == (None, PendingReason.EXCEEDS_MAX, ())
    assert outcome.why.endswith("requests 24 GPUs; the maximum capacity of cq-prod is 16 GPUs of a100.")
    assert "maximum capacity (16)" in outcome.text


def test_with_a_smaller_borrowing_limit_the_same_submission_waits() -> None:
    submit = Submit((job("rlhf-2", "research/lq", 4, 500),))
    free = ask(submit).outcomes[0]
    cut = ask(SetQuota("cq-research", "a100", GPU, 8, 4, None), submit).outcomes[0]

    assert (free.admitted, free.why) == (NOW, FEASIBLE)
    assert (cut.admitted, cut.code) == (None, PendingReason.QUOTA)
    assert cut.why == "rlhf-2 needs 4 GPUs; cq-research has 0 GPUs of a100 available within its borrowing limit."


@pytest.mark.parametrize("name", ["research/job-late-0a1b2", "Job/research/late", "research/late"])
def test_a_change_is_about_the_same_workload_by_its_own_name_and_by_that_of_its_job(name: str) -> None:
    late = replace(job("job-late-0a1b2", "research/lq", 4, 500), owner="Job/research/late")
    snapshot = org_cohort(late).snapshot()
    for command in (SetPriority(name, 1), Requeue(name), AnswerCheck(name, "budget", "Ready")):
        assert subjects_of((command,), snapshot) == {late.key}


def test_who_waits_still_is_told_by_what_it_waits_for() -> None:
    """No node has 16 GPUs: it is let in and waits there; with a check it does not even get so far."""
    more = SetQuota("cq-prod", "a100", GPU, 40)
    found = ask(more, Submit((job("wide", "prod/lq", 16, 0),)), horizon=MINUTE)
    assert (found.waiting_without, found.checking_without, found.placeless_without) == (0, 0, 0)
    assert (found.waiting, found.checking, found.placeless) == (0, 0, 1)
    assert ask(SetPriority("research/rlhf", 500), horizon=MINUTE).empty
    assert not replace(ask(SetPriority("research/rlhf", 500), horizon=MINUTE), placeless=1).empty


def test_who_is_let_in_without_a_node_for_each_pod_has_not_started() -> None:
    """Three pods of two where two have room: the third waits, and its scheduler says why."""
    pods = (PodSet(count=3, template=PodTemplate(containers=(Container(requests={GPU: 2}),))),)
    batch = Job(namespace="prod", name="three", queue="lq", pod_sets=pods, duration=HOUR, rules=BatchRules())
    found = ask(SetQuota("cq-prod", "a100", GPU, 40), Submit((batch,)), horizon=2 * MINUTE)
    (one,) = found.outcomes
    assert (one.admitted, one.started, one.code) == (NOW, None, PendingReason.NODES)
    assert one.lacking == "1 of 3 pods unschedulable: 3 Insufficient nvidia.com/gpu"


def test_who_runs_already_is_admitted_since_it_was() -> None:
    base = org_cohort()
    ran = base.workload("research/rlhf")
    assert ran is not None
    since = admitted_since(ran)
    found = ask(SetPriority("research/rlhf", 501), base=base, horizon=MINUTE)
    (one,) = found.outcomes
    assert (one.admitted, one.started, one.admitted_without, one.code) == (
        since,
        since,
        since,
        PendingReason.NOT_WAITING,
    )
    assert (one.lacking, one.same) == ("", True)
    assert as_text(found)[2] == "research/rlhf, 6 GPUs: already admitted since 2026-01-05T08:04:00Z"


def test_a_bystander_that_has_to_wait_longer_is_named() -> None:
    """Without serve-2, batch gets all of prod's 16 when serve ends: a second for the wake-up, 30 for rlhf to leave."""
    base = org_cohort(job("batch", "prod/lq", 16, 0))
    answer = ask(Submit((job("serve-2", "prod/lq", 8, 10_000, "2h"),)), base=base)

    assert answer.shifts == (
        StartShift(
            workload="prod/batch", queue="cq-prod", gpus=16, without=START + 48 * MINUTE + 31 * SECOND, changed=None
        ),
    )
    assert [(victim.workload, victim.by) for victim in answer.evictions] == [("research/rlhf", "prod/serve-2")]
    # Its pods find no nodes within half an hour, so that batch goes back to its queue, and evicts rlhf once more.
    assert [(victim.workload, victim.by) for victim in answer.evictions_without] == [
        ("research/rlhf", "prod/batch"),
        ("prod/batch", ""),
        ("research/rlhf", "prod/batch"),
    ]


def test_raising_a_priority_evicts_inside_the_queue() -> None:
    base = org_cohort(job("rlhf-2", "research/lq", 6, 500, "20m"))
    answer = ask(SetPriority("research/rlhf-2", 501), base=base)

    assert [(victim.workload, victim.by, victim.rule) for victim in answer.evictions] == [
        ("research/rlhf", "research/rlhf-2", "priority in the queue")
    ]
    assert [outcome.workload for outcome in answer.outcomes] == ["research/rlhf-2"]
    assert answer.outcomes[0].admitted is not None


def test_draining_a_node_names_who_has_to_go_and_what_it_loses() -> None:
    """serve has node-2 to itself and has run for 27 minutes; the other nodes have no room for all of its 8 GPUs.

    When its pods are not back after half an hour, it loses its quota as well.
    """
    answer = ask(Drain("node-2"))

    assert [(victim.workload, victim.gpus, victim.rule) for victim in answer.evictions] == [
        ("prod/serve", 8, "Drained"),
        ("prod/serve", 8, "PodsReadyTimeout"),
    ]
    assert (answer.lost_gpu_hours_without, answer.lost_gpu_hours) == (0.0, 27 * 8 / 60)
    assert [victim.returns for victim in answer.evictions] == [None, None], "admitted again it waits for nodes again"


def test_losing_a_node_names_who_was_on_it_what_it_loses_and_when_it_goes_on() -> None:
    """llm-ft and embed share node-1 and keep their quota: embed goes on elsewhere, llm-ft waits for the node."""
    answer = ask(FailNode("node-1"), Later(5 * MINUTE, RestoreNode("node-1")))

    assert [(victim.workload, victim.gpus, victim.rule) for victim in answer.evictions] == [
        ("research/llm-ft", 4, "NodeLost"),
        ("research/embed", 2, "NodeLost"),
    ]
    assert sum(victim.lost_gpu_hours for victim in answer.evictions) == answer.lost_gpu_hours
    assert [victim.returns for victim in answer.evictions] == [NOW + 5 * MINUTE, NOW]


def test_a_refused_command_is_told_and_changes_nothing_else() -> None:
    answer = ask(SetActive("ns/unknown", True))

    assert (len(answer.refused), answer.outcomes, answer.evictions, answer.queues) == (1, (), (), ())
    assert not answer.empty


def test_an_answer_survives_the_way_from_a_worker_process() -> None:
    answer = ask(Submit((SERVE_2,)))

    assert msgspec.msgpack.decode(msgspec.msgpack.encode(answer), type=WhatIf) == answer


def test_the_first_look_has_what_the_next_cycle_brings_and_the_last_one_everything() -> None:
    found = list(what_if_steps(org_cohort(), (Submit((SERVE_2,)),), HOUR))
    first, last = found[0].answer, found[-1].answer
    assert first is not None
    assert last is not None

    assert (found[0].done, first.horizon, [victim.workload for victim in first.evictions]) == (
        0,
        NOW,
        ["research/rlhf"],
    )
    assert (found[-1].done, last) == (HOUR, ask(Submit((SERVE_2,))))
    assert [look.answer for look in found[1:-1]] == [None] * (len(found) - 2)
    assert [look.done for look in found] == sorted(look.done for look in found)


def test_two_lists_of_changes_are_held_against_each_other() -> None:
    answer = complete_answer(
        what_if_steps(org_cohort(), (Submit((SERVE_2,)),), HOUR, (SetQuota("cq-prod", "a100", GPU, 8, 0, None),))
    )
    same = complete_answer(what_if_steps(org_cohort(), (Submit((SERVE_2,)),), HOUR, (Submit((SERVE_2,)),)))

    assert ([victim.workload for victim in answer.evictions], answer.queues[0].used_without) == (["research/rlhf"], 8)
    assert ([one.workload for one in same.against], same.empty) == (["prod/serve-2"], True)


def test_what_is_for_later_is_compared_all_the_same() -> None:
    answer = ask(Later(10 * MINUTE, Submit((SERVE_2,))))

    assert [(one.workload, one.admitted) for one in answer.outcomes] == [
        ("prod/serve-2", NOW + 10 * MINUTE + 30 * SECOND)
    ]


def _in_force(snapshot: Snapshot) -> list[Command]:
    """Commands that ask for what is so already."""
    asked: list[Command] = [Reconfigure(feature_gates={"PartialAdmission": True}, placement={"score": "binpack"})]
    for queue in snapshot.cluster_queues.all():
        asked += [
            SetWeight(queue.name, queue.fair_weight),
            SetCohort(queue.name, queue.cohort),
            SetPreemption(queue.name),
            SetStopPolicy(queue.name, queue.stop_policy),
        ]
        for (flavor, resource), q in queue.quotas().items():
            asked.append(SetQuota(queue.name, flavor, resource, q.nominal, q.borrowing_limit, q.lending_limit))
    for node_ in snapshot.nodes.all():
        asked.append(Cordon(node_.name, node_.unschedulable))
        asked += [SetTaint(node_.name, t.key, t.value, t.effect) for t in node_.taints]  # type: ignore[arg-type]
    asked += [SetPriority(w.key, w.priority) for w in snapshot.workloads.all() if not w.finished]
    things: list[Object] = [*snapshot.flavors.all(), *snapshot.cluster_queues.all(), *snapshot.local_queues.all()]
    return [*asked, Submit(tuple(things))]


@settings(max_examples=12, deadline=None)
@given(LIVES, st.data())
def test_asking_for_what_is_so_makes_no_difference_whatever_happened_before(
    deeds: list[tuple[Span, Deed]], data: st.DataObject
) -> None:
    base = Simulation.from_objects(cluster(), policy=SimPolicy(), seed=1, start=START)
    live(base, deeds)
    base.submit(Reconfigure(feature_gates={"PartialAdmission": True}, placement={"score": "binpack"}))
    commands = data.draw(st.permutations(_in_force(base.snapshot())))

    answer = complete_answer(what_if_steps(base, commands, 20 * MINUTE))
    assert answer.empty, answer


def test_a_start_that_comes_all_the_same_is_no_difference() -> None:
    """The pod of `a` failed and is made anew in 10 s: it starts again without a new admission, in either future."""
    base = Simulation.from_objects(cluster(), policy=SimPolicy(), seed=1, start=START)
    base.submit(Submit((workload("a", "red", gpus=1, duration="6m"),)))
    base.submit(FailPod("red/a-0"))

    answer = complete_answer(what_if_steps(base, (SetPriority("red/a", 0),), 20 * MINUTE))
    assert [(one.admitted, one.admitted_without) for one in answer.outcomes] == [(START + 10 * SECOND,) * 2]
    assert answer.empty


def test_gpus_of_a_node_that_is_lost_count_as_long_as_it_was_there() -> None:
    answer = ask(Later(15 * MINUTE, FailNode("node-1")))

    assert (answer.gpus_total_without, answer.gpus_total_with) == (24, 16)
    assert answer.capacity_hours_without == pytest.approx(24)
    assert answer.capacity_hours == pytest.approx(24 - 8 * 0.75)


@settings(max_examples=40, deadline=None)
@given(LIVES, LIVES)
def test_what_is_added_up_by_what_changed_is_what_adding_up_anew_gives(
    deeds: list[tuple[Span, Deed]], more: list[tuple[Span, Deed]]
) -> None:
    base = Simulation.from_objects(cluster(), policy=SimPolicy(), seed=1, start=START)
    live(base, deeds)
    twin = base.fork()
    live(twin, more)
    for simulation in (base, twin, base):
        snapshot = simulation.snapshot()
        rows, where = gpu_rows(snapshot), updated(NO_PODS_BY_NODE, snapshot.pods.rows)
        drawn = GpuMapIndex(snapshot)
        drawn.draw(None)
        assert rows == drawn.rows
        assert {name: dict(pods) for name, pods in pods_by_node(snapshot).by_node.items() if pods} == where.by_node
        assert pods_by_node(snapshot).by_workload == where.by_workload
        totals = gpu_totals(snapshot)
        idle = [row.counts[GpuState.IDLE] for row in rows]
        assert (totals.total, totals.idle) == (sum(row.gpus for row in rows), sum(idle))
        limits = gang_limits(snapshot)
        assert totals.largest_gang == largest(limits.gangs(rows))
        cost = sum(node_hourly(node, simulation.policy.prices) for node in snapshot.nodes.all())
        assert nodes_hourly(snapshot, simulation.policy.prices) == cost


def test_of_two_that_take_a_place_at_one_moment_the_rule_is_that_of_the_one_who_is_named() -> None:
    def preempted(by: str, reason: str) -> HistoryEvent:
        return HistoryEvent(time=NOW, what=HistoryEventKind.PREEMPTED, workload="a/b", by=by, reason=reason)

    lost = HistoryEvent(
        time=NOW, what=HistoryEventKind.POD_EVICTED, workload="a/b", pod="a/b-0", by="default/pod", reason="Preempted"
    )
    course = FutureEvents(
        begun=NOW,
        lines=[preempted("default/pod", "Preempted"), lost, preempted("a/c", PreemptionRule.IN_CLUSTER_QUEUE.value)],
    )
    assert [(victim.by, victim.rule) for victim in course.evictions()] == [("default/pod", "Preempted")]
