"""What Volcano's plugins say of jobs and victims: who is let in, who goes first, whom nobody may evict."""

import pytest

from gpuconsole.model.clock import MINUTE, SECOND
from gpuconsole.model.cluster import PodDisruptionBudget, ResourceQuota
from gpuconsole.model.labels import LabelSelector
from gpuconsole.model.pod_template import Container, PodTemplate
from gpuconsole.model.resources import CPU, GPU, MEMORY
from gpuconsole.scheduling.volcano.api.job import JobInfo
from gpuconsole.scheduling.volcano.api.node import NodeUsage
from gpuconsole.scheduling.volcano.api.task import Qos, TaskInfo, qos_of
from gpuconsole.scheduling.volcano.config import VolcanoArguments, VolcanoConfiguration, VolcanoPluginOption
from gpuconsole.scheduling.volcano.plugins.predicates import max_victims, parse_zone_hours
from gpuconsole.scheduling.volcano.scheduler_conf import PLUGINS
from gpuconsole.scheduling.volcano.session import BudgetAllowance, VolcanoSession
from gpuconsole.scheduling.volcano.session_plugins import ABSTAIN, PERMIT, REJECT
from gpuconsole.scheduling.volcano.store import budget_allowance
from tests.support.volcano_clusters import GIB, NOON, cluster, job, node, pod, session, task

HOUR = 60 * MINUTE
WEB = LabelSelector({"app": "web"})


def names(tasks: list[TaskInfo] | None) -> list[str]:
    return [one.name for one in tasks or ()]


# sla


def waiting(name: str, *, created: int, waits: str = "") -> JobInfo:
    return job(name=name, created=created, annotations={"sla-waiting-time": waits} if waits else {})


def test_a_job_that_waited_long_enough_is_let_in_and_keeps_its_nodes() -> None:
    late, early = waiting("late", created=NOON - 31 * MINUTE), waiting("early", created=NOON - 29 * MINUTE)
    patient = waiting("patient", created=NOON - 31 * MINUTE, waits="1h")
    opened = session("sla", [], [late, early, patient], arguments={"sla-waiting-time": "30m"})
    for votes in (opened.functions.job_enqueueable["sla"], opened.functions.job_pipelined["sla"]):
        assert [votes(one) for one in (late, early, patient)] == [PERMIT, ABSTAIN, ABSTAIN]


def test_the_earliest_deadline_goes_first() -> None:
    jobs = [waiting("a", created=NOON), waiting("b", created=NOON, waits="2h"), waiting("c", created=NOON, waits="1h")]
    order = session("sla", [], jobs).functions.job_order["sla"]
    assert [order(left, right) for left, right in ((jobs[1], jobs[2]), (jobs[2], jobs[0]), (jobs[0], jobs[0]))] == [
        1,
        -1,
        0,
    ]


@pytest.mark.parametrize("text", ["soon", "-5m", "0s", 30])
def test_a_waiting_time_that_is_none_lets_nobody_in(text: object) -> None:
    overdue = waiting("a", created=0)
    opened = session("sla", [], [overdue], arguments={"sla-waiting-time": text})
    assert opened.functions.job_enqueueable["sla"](overdue) == ABSTAIN


# resourcequota


def test_a_namespace_lets_in_what_its_quota_has_room_for() -> None:
    jobs = [job(name=name, min_resources={CPU: 3000, GPU: 1}) for name in ("a", "b", "c")]
    free = job(name="free")
    opened = session("resourcequota", [], [*jobs, free])
    opened.quotas["default"] = [ResourceQuota(name="q", hard={CPU: 8000}, used={CPU: 1000})]
    votes = opened.functions.job_enqueueable["resourcequota"]
    assert [votes(one) for one in (*jobs, free)] == [PERMIT, PERMIT, REJECT, PERMIT]
    assert [(one.name, text) for one, text in opened.events] == [
        ("c", "resource quota insufficient, requested: cpu: 3, used: cpu: 1, limited: cpu: 8")
    ]


# pdb


def test_no_more_go_than_budgets_allow() -> None:
    tasks = [task(f"p{number}", labels={"app": "web"}) for number in range(3)]
    bare, other, gone = task("bare"), task("other", labels={"app": "db"}), task("gone", labels={"app": "web"})
    opened = session("pdb", [])
    opened.budgets = [
        BudgetAllowance(namespace="default", selector=WEB, allowed=2, disrupted=frozenset(("gone",))),
        BudgetAllowance(namespace="default", selector=LabelSelector(), allowed=0),
        BudgetAllowance(namespace="elsewhere", selector=WEB, allowed=0),
    ]
    candidates = [tasks[0], bare, tasks[1], gone, tasks[2], other]
    for found in (
        opened.preemptable(bare, candidates),
        opened.reclaimable(bare, candidates),
        opened.victim_tasks(candidates),
    ):
        assert sorted(names(list(found or ()))) == ["gone", "other", "p0", "p1"]


@pytest.mark.parametrize(
    ("asked", "allowed"),
    [
        ({"min_available": "2"}, 1),
        ({"min_available": "60%"}, 0),
        ({"max_unavailable": "2"}, 1),
        ({"max_unavailable": "25%"}, 0),
        ({}, 3),
    ],
)
def test_a_budget_counts_its_healthy_pods(asked: dict[str, str], allowed: int) -> None:
    pods = [pod(f"p{number}", labels={"app": "web"}) for number in range(4)]
    budget = PodDisruptionBudget(name="b", selector=WEB, **asked)
    healthy = [one.key for one in pods[:3]] + ["default/other"]
    assert budget_allowance(budget, [*pods, pod("other")], healthy).allowed == allowed


# cdp


def test_a_pod_that_started_just_now_is_spared() -> None:
    kept = {"volcano.sh/cooldown-time": "10m"}
    tasks = [
        task("fresh", on="n", annotations=kept, bound=NOON - 9 * MINUTE),
        task("old", on="n", labels=kept, bound=NOON - 11 * MINUTE),
        task("unreadable", on="n", labels={"volcano.sh/cooldown-time": "1d"}, bound=NOON),
        task("unprotected", on="n", bound=NOON),
        task("waiting", annotations=kept, bound=NOON),
    ]
    opened = session("cdp", [])
    wanted = ["old", "unreadable", "unprotected", "waiting"]
    assert names(opened.preemptable(tasks[0], tasks)) == wanted
    assert names(opened.reclaimable(tasks[0], tasks)) == wanted


# tdm

ZONE = {"volcano.sh/revocable-zone": "rz1"}
FREE = {"volcano.sh/revocable-zone": "*"}


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("10:00-21:00", (10 * HOUR, 21 * HOUR)),
        (" 9:30-9:30", (9 * HOUR + 30 * MINUTE, 33 * HOUR + 30 * MINUTE)),
        ("22:00-6:00", (22 * HOUR, 30 * HOUR)),
        ("10:00", None),
        ("10:00-24:00", None),
        ("10:60-11:00", None),
        ("a-b", None),
    ],
)
def test_hours_of_a_zone(text: str, span: tuple[int, int] | None) -> None:
    assert parse_zone_hours(text) == span


LENT: dict[str, tuple[str, dict[str, str], str, float]] = {
    "within the hours": ("10:00-21:00", FREE, "", 100),
    "in the last second of them": ("10:00-12:00", FREE, "", 100),
    "beyond the hours": ("13:00-21:00", FREE, "current time beyond revocable zone rz1:13:00-21:00", 0),
    "a task that may not go there": ("10:00-21:00", {}, "not allow to dispatch to revocable node", 0),
    "a zone that nobody knows": ("", FREE, "revocable zone rz1 not support", 0),
}


@pytest.mark.parametrize("name", LENT)
def test_lent_nodes_take_only_some_tasks_at_some_hours(name: str) -> None:
    text, annotations, reason, score = LENT[name]
    one = task("p", annotations=annotations)
    arguments = {"tdm.revocable-zone.rz1": text} if text else {}
    opened = session(
        "tdm", [node("lent", labels=ZONE), node("own")], [job([one])], arguments=arguments, now=NOON + SECOND // 2
    )
    error = opened.predicate(one, opened.nodes["lent"])
    assert (error.reasons if error is not None else []) == ([reason] if reason else [])
    assert opened.predicate(one, opened.nodes["own"]) is None
    assert opened.node_scores(one, opened.node_list) == {"lent": score, "own": 0}


def running(count: int, *, on: str = "lent", **facts: object) -> JobInfo:
    tasks = [task(f"p{number}", on=on, annotations={"volcano.sh/preemptable": "true"}) for number in range(count)]
    return job(tasks, **facts)


def test_after_the_hours_tasks_go_a_few_at_a_time() -> None:
    arguments = {"tdm.revocable-zone.rz1": "1:00-2:00", "tdm.evict.period": "2m"}
    kept: dict[str, int] = {}
    for later, gone in ((0, ["p0", "p1"]), (2 * MINUTE - 1, []), (2 * MINUTE, ["p0", "p1"])):
        there = running(4, annotations={"volcano.sh/jdb-max-unavailable": "50%"})
        opened = session("tdm", [node("lent", labels=ZONE)], [there], arguments=arguments, now=NOON + later)
        opened.last_runs.update(kept)
        assert sorted(names(list(opened.victim_tasks([])))) == gone
        kept = opened.last_runs
    assert kept == {"tdm": NOON + 2 * MINUTE}


@pytest.mark.parametrize(
    ("annotations", "count"),
    [
        ({}, 1),
        ({"volcano.sh/jdb-max-unavailable": "2"}, 2),
        ({"volcano.sh/jdb-max-unavailable": "30%"}, 2),
        ({"volcano.sh/jdb-max-unavailable": "few"}, 0),
        ({"volcano.sh/jdb-min-available": "75%"}, 1),
        ({"volcano.sh/jdb-min-available": "5"}, 1),
    ],
)
def test_a_jobs_budget_limits_how_many_go(annotations: dict[str, str], count: int) -> None:
    assert max_victims(running(4, annotations=annotations)) == count


def test_only_tasks_that_are_not_preemptable_take_the_place_of_others() -> None:
    there = running(2, on="own", annotations={"volcano.sh/jdb-max-unavailable": "2"})
    lent = task("lent", on="lent", annotations={"volcano.sh/preemptable": "true"})
    there.add_task(lent)
    firm = task("firm", annotations={"volcano.sh/preemptable": "false"})
    opened = session("tdm", [node("own"), node("lent", labels=ZONE)], [there])
    ask = opened.functions.preemptable["tdm"]
    victims, vote = ask(firm, [*there.tasks.values()])
    assert (names(victims), vote) == (["p0", "p1"], PERMIT)
    assert ask(lent, [*there.tasks.values()]) == (None, REJECT)


# rescheduling


def test_busy_nodes_give_tasks_away_now_and_then() -> None:
    def opened(later: int, kept: dict[str, int], **usage: NodeUsage) -> list[str]:
        """Whom the strategy lets go: of priority 2, 1, 0 and 0, each with 2 of the busy node's 8 cores."""
        there = job(
            [
                TaskInfo(pod(f"p{number}", on="busy", priority=priority, requests={CPU: 2000, MEMORY: GIB}))
                for number, priority in enumerate((2, 1, 0, 0))
            ]
        )
        strategy = {
            "name": "lowNodeUtilization",
            "params": {"thresholds": {"cpu": 20}, "targetThresholds": {"cpu": 60}},
        }
        given = {"interval": "5m", "strategies": [strategy, {"name": "other"}]}
        made = cluster([node("busy"), node("idle"), node("off", unschedulable=True)], [there], now=NOON + later)
        made.last_runs.update(kept)
        option = VolcanoPluginOption(name="rescheduling", arguments=VolcanoArguments(given))
        on = VolcanoSession(VolcanoConfiguration(tiers=((option,),)), made, plugins=PLUGINS)
        for name, measured in usage.items():
            on.nodes[name].usage = measured
        victims = on.victim_tasks([*there.tasks.values()])
        kept.update(on.last_runs)
        return names(list(victims))

    kept: dict[str, int] = {}
    busy = NodeUsage(NOON, {"5m": 90.0}, {"5m": 10.0})
    assert opened(0, kept, busy=busy) == [], "the first interval begins now"
    assert opened(5 * MINUTE, kept, busy=busy) == []
    # 90 % and 65 % are too much, 40 % is not.
    assert sorted(opened(5 * MINUTE + 1, kept, busy=busy)) == ["p2", "p3"]
    assert opened(10 * MINUTE, kept, busy=busy) == []
    half = NodeUsage(NOON, {"5m": 50.0}, {})
    assert opened(15 * MINUTE, kept, busy=busy, idle=half) == [], "no node is idle"
    assert opened(30 * MINUTE, kept, busy=half) == [], "no node is busy"


@pytest.mark.parametrize(
    ("requests", "limits", "wanted"),
    [
        ({}, {}, Qos.BEST_EFFORT),
        ({GPU: 1}, {GPU: 1}, Qos.BEST_EFFORT),
        ({CPU: 1}, {}, Qos.BURSTABLE),
        ({CPU: 1}, {CPU: 1}, Qos.BURSTABLE),
        ({CPU: 1, MEMORY: 1}, {CPU: 1, MEMORY: 2}, Qos.BURSTABLE),
        ({}, {CPU: 1, MEMORY: 2}, Qos.GUARANTEED),
    ],
)
def test_how_firmly_a_pod_holds_what_it_uses(requests: dict[str, int], limits: dict[str, int], wanted: Qos) -> None:
    assert qos_of(PodTemplate(containers=(Container(requests=requests, limits=limits),))) is wanted


# arguments


def test_arguments_of_another_type_count_as_missing() -> None:
    given = VolcanoArguments({"i": 3, "f": 1.5, "s": "x", "b": True, "t": "true", "n": None})
    assert [given.integer(key, 7) for key in ("i", "f", "s", "b", "none")] == [3, 7, 7, 7, 7]
    assert [given.number(key, 7) for key in ("i", "f", "s", "b", "none")] == [3, 1.5, 7, 7, 7]
    assert [given.flag(key, False) for key in ("b", "t", "i", "s", "none")] == [True, True, False, False, False]
    assert [given.text(key, "-") for key in ("s", "i", "n", "none")] == ["x", "-", "-", "-"]
