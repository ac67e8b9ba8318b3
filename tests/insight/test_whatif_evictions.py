"""Evictions of a what-if by cause, and the verdict in one sentence."""

from msgspec.structs import replace

from gpuconsole.insight.pending.reasons import PendingReason
from gpuconsole.insight.whatif.answer import EvictedWorkload, evictions_by_cause, verdict
from gpuconsole.insight.whatif.futures import WhatIfEviction
from gpuconsole.insight.whatif.whatif import StartShift, WhatIf, WhatIfOutcome, what_if_steps
from gpuconsole.model.clock import HOUR, MINUTE, SECOND
from gpuconsole.model.commands import Drain, SetActive, SetQuota, Submit
from gpuconsole.model.cooperative import complete_answer
from gpuconsole.model.objects import Object
from gpuconsole.model.queues import LocalQueue, Quota
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import SimPolicy
from tests.insight.test_answer_laws import borrow, lived
from tests.support.sim_cluster import job
from tests.support.snapshots import A100, START, cluster_queue, node, waiting


def eviction(
    workload: str, by: str, after: int = 0, rule: str = "reclaim in cohort", lost: float = 0.0
) -> WhatIfEviction:
    return WhatIfEviction(
        time=START + after * SECOND,
        workload=workload,
        queue="cq",
        gpus=8,
        priority=0,
        by=by,
        by_priority=1,
        rule=rule,
        lost_gpu_hours=lost,
        cost=2 * lost,
        returns=None,
    )


def evicted(workload: str, by: str, times: int, last: int = 0, lost: float = 0.0) -> EvictedWorkload:
    return EvictedWorkload(
        workload=workload,
        queue="cq",
        gpus=8,
        priority=0,
        evictions=times,
        first=START,
        last=START + last * SECOND,
        by=(by,) if by else (),
        rules=("reclaim in cohort",),
        lost_gpu_hours=lost,
        cost=2 * lost,
        returns=None,
    )


def test_a_loop_is_one_entry_behind_the_victims_of_the_work_and_the_work_is_no_victim_of_its_own() -> None:
    loop = [eviction("a/loop", "b/other", second) for second in range(100)]
    found = evictions_by_cause(
        [
            eviction("a/victim", "a/new", lost=1.5),
            *loop,
            eviction("b/dear", "b/other", lost=2),
            eviction("a/new", "b/x"),
        ],
        {"a/new"},
        only_work=True,
    )
    assert found.direct == (evicted("a/victim", "a/new", 1, lost=1.5),)
    assert found.knock_on == (evicted("b/dear", "b/other", 1, lost=2), evicted("a/loop", "b/other", 100, 99))
    assert found.own == (evicted("a/new", "b/x", 1),)


def test_a_workload_that_another_preempts_in_the_baseline_is_neither_knock_on_nor_avoided() -> None:
    """`both` is evicted twice with the commands and once without; `new` preempts `victim`, which is no avoided one."""
    changed = (eviction("a/both", "b/x"), eviction("a/both", "b/x", 9), eviction("a/victim", "a/new"))
    baseline = (eviction("a/both", "b/y"), eviction("a/victim", "b/y"), eviction("a/saved", "b/y"))
    answer = replace(
        complete_answer(what_if_steps(shared(), [], 10 * MINUTE)),
        evictions=changed,
        evictions_without=baseline,
        subjects=("a/new",),
        only_work=True,
    )
    assert (answer.victims, answer.knock_on, answer.spared) == (
        (evicted("a/victim", "a/new", 1),),
        (replace(evicted("a/both", "b/x", 1, 9), first=START + 9 * SECOND),),
        (evicted("a/saved", "b/y", 1),),
    )


def test_what_has_no_preemptor_is_a_direct_victim_only_where_a_change_may_evict() -> None:
    lines = [
        eviction("a/drained", "", rule="Drained"),
        eviction("a/drained", "", rule="PodsReadyTimeout"),
        eviction("a/late", "", rule="PodsReadyTimeout"),
    ]
    of_nodes, of_work = (evictions_by_cause(lines, set(), only_work=only) for only in (False, True))
    assert [(one.workload, one.evictions) for one in of_nodes.direct] == [("a/drained", 2)]
    assert [one.workload for one in of_nodes.knock_on] == ["a/late"]
    assert (of_work.direct, [one.workload for one in of_work.knock_on]) == ((), ["a/drained", "a/late"])


def shared() -> Simulation:
    """The lender owns all eight GPUs of a node; a borrower has run on them for half an hour."""
    objects: list[Object] = [A100, node("n1")]
    for name, gpus in (("borrower", 0), ("lender", 8)):
        objects += [cluster_queue(name, "org", Quota(gpus)), LocalQueue(namespace=name, name="lq", cluster_queue=name)]
    objects.append(waiting("guest", "borrower/lq", 8, annotations={"gpuconsole.io/duration": "2h"}))
    simulation = Simulation.from_objects(objects, policy=SimPolicy(), seed=1, start=START)
    simulation.advance(START + 30 * MINUTE)
    return simulation


def owner(gpus: int = 8) -> Submit:
    work = waiting("owner", "lender/lq", gpus, annotations={"gpuconsole.io/duration": "10m"})
    return Submit((replace(work, uid="", created=START + 30 * MINUTE),))


def test_the_verdict_says_when_the_work_starts_whom_it_preempts_and_when_that_is_back() -> None:
    answer = complete_answer(what_if_steps(shared(), (owner(),), HOUR))
    assert verdict(answer) == (
        "lender/owner starts in 30s; preempts borrower/guest (8 GPUs, loses 4.0 GPU-hours, restarts in about 10m31s)."
    )


def test_the_verdict_of_work_that_does_not_fit_says_why() -> None:
    answer = complete_answer(what_if_steps(shared(), (owner(16),), HOUR))
    assert verdict(answer).startswith("lender/owner is not admitted before the horizon: ")


def test_the_verdict_of_a_drained_node_names_who_is_evicted_by_it() -> None:
    assert verdict(complete_answer(what_if_steps(shared(), (Drain("n1"),), MINUTE))) == (
        "evicts borrower/guest (8 GPUs, loses 4.0 GPU-hours, does not restart before the horizon)."
    )


def test_the_verdict_of_what_changes_nothing_says_so() -> None:
    answer = complete_answer(what_if_steps(shared(), (SetQuota("lender", "a100", "nvidia.com/gpu", 8),), MINUTE))
    assert verdict(answer) == "These changes make no difference before the horizon."


def test_the_verdict_counts_the_evictions_of_the_work_itself_and_names_three_victims() -> None:
    answer = complete_answer(what_if_steps(shared(), (owner(),), 0))
    (one,) = answer.outcomes
    assert isinstance(one, WhatIfOutcome)
    many: WhatIf = replace(
        answer,
        outcomes=(replace(one, admitted=START, started=answer.time + MINUTE, code=PendingReason.NOT_WAITING),),
        evictions=(
            *(eviction(f"a/{name}", "lender/owner", 1800) for name in "dbca"),
            eviction("lender/owner", "x/y", 1860),
            eviction("lender/owner", "x/y", 1920),
        ),
    )
    price = "8 GPUs, loses 0.0 GPU-hours, does not restart before the horizon"
    assert verdict(many) == (
        f"lender/owner starts in 1m; preempts a/a ({price}), a/b ({price}), a/c ({price}) and 1 more workload; "
        "it is itself evicted 2 times, first in 1m by x/y."
    )
    once = replace(many, evictions=(eviction("lender/owner", "x/y", 1860),))
    assert verdict(once) == (
        "lender/owner starts in 1m; preempts no workload; it is itself evicted once, in 1m by x/y."
    )


def test_work_that_runs_and_loses_its_node_for_good_is_not_said_never_to_start() -> None:
    """The node of the owner is lost after five minutes of its ten; there is no other."""
    answer = complete_answer(what_if_steps(shared(), (owner(),), HOUR))
    (one,) = answer.outcomes
    lacking = replace(one, started=None, code=PendingReason.NODES, why="1 of 1 pods have no node.")
    lost = replace(eviction("lender/owner", "", 300), lost_gpu_hours=0.6)
    for evictions, words in (
        ((lost,), "is admitted in 30s, is evicted and does not restart before the horizon: 1 of 1 pods have no node; "),
        ((), "is admitted in 30s but does not start before the horizon: 1 of 1 pods have no node"),
    ):
        found: WhatIf = replace(answer, outcomes=(lacking,), evictions=evictions)
        assert verdict(found).startswith(f"lender/owner {words}")


def test_the_verdict_of_a_quota_tells_work_that_is_no_longer_admitted_from_work_that_is_admitted_later() -> None:
    answer = complete_answer(what_if_steps(shared(), (SetQuota("lender", "a100", "nvidia.com/gpu", 9),), MINUTE))
    moves = ((3, 1), (5, 2), (None, 4), (1, 6), (2, None), (3, None), (4, None))
    shifts = tuple(
        StartShift(
            workload=f"a/{n}",
            queue="lender",
            gpus=1,
            without=None if without is None else START + without * MINUTE,
            changed=None if changed is None else START + changed * MINUTE,
        )
        for n, (without, changed) in enumerate(moves)
    )
    found: WhatIf = replace(answer, shifts=shifts)
    assert verdict(found) == (
        "2 pending workloads admitted earlier; 1 pending workload admitted that would not be before the horizon; "
        "1 pending workload admitted later; 3 pending workloads no longer admitted before the horizon."
    )


def test_the_reason_of_work_that_is_not_admitted_goes_on_in_the_sentence() -> None:
    answer = complete_answer(what_if_steps(shared(), (owner(),), HOUR))
    (one,) = answer.outcomes
    waits = replace(
        one, admitted=None, started=None, code=PendingReason.CHECKS, why="Quota reserved in q; waiting for c."
    )
    found: WhatIf = replace(answer, outcomes=(waits,), evictions=())
    assert verdict(found) == ("lender/owner is not admitted before the horizon: quota reserved in q; waiting for c.")


def test_what_is_drained_and_preempted_at_one_moment_is_evicted_by_both_and_counts_its_gpus_once() -> None:
    """The borrower's pods stand on the node that is drained, and its quota is reclaimed in the same cycle."""
    base = lived([(0, borrow), (0, lambda simulation: simulation.submit(SetActive("blue/small", True)))])
    new = job("a", "red", gpus=1, pods=2, duration=MINUTE)
    found = complete_answer(what_if_steps(base, [Drain("n2"), Submit((new,))], 20 * MINUTE))
    told = [(one.workload, one.by.partition("-")[0], one.rule, one.gpus) for one in found.evictions]
    assert told == [("blue/small", "", "Drained", 3), ("blue/small", "red/job", "reclaim in cohort", 3)]
    assert {one.returns for one in found.evictions} == {base.now + 91 * SECOND}
