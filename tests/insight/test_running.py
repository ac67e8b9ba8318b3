"""Everything that runs: Workloads as they are admitted, and what nobody admits by the pods that it has on nodes."""

import pytest
from msgspec.structs import replace

from gpuconsole.insight.cost.rates import EvictionLoss
from gpuconsole.insight.preemption.risk import Runner, runners
from gpuconsole.model.clock import HOUR
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.job import CronRules, Job, JobPhase
from gpuconsole.model.pod_template import Container, PodTemplate
from gpuconsole.model.prices import Prices
from gpuconsole.model.queues import ClusterQueue
from tests.support.snapshots import ORG, START, node, pod, world

PRICES = Prices(gpu_hour={}, other=2.0)


def running_job(kind: str, name: str, owner: str = "") -> Job:
    began = START - HOUR
    return Job(
        kind=kind, namespace="team", name=name, owner=owner, phase=JobPhase.RUNNING, created=began, started=began
    )


def test_a_workload_runs_on_the_quota_that_it_holds_some_of_it_borrowed() -> None:
    found = {
        one.key: (one.queue, one.gpus, one.borrowed, one.priority, one.pods) for one in runners(world(ORG), PRICES)
    }
    assert found == {
        "research/llm-ft": ("cq-research", 4, 0, 500, ()),
        "research/embed": ("cq-research", 2, 0, 500, ()),
        "research/rlhf": ("cq-research", 6, 4, 500, ()),
        "prod/serve": ("cq-prod", 8, 0, 10_000, ()),
    }


def test_the_pods_of_a_job_that_nobody_admitted_are_those_of_the_outermost_job() -> None:
    snapshot = world(
        [
            node("n", labels={}),
            running_job("JobSet", "set"),
            running_job("Job", "set-a", "JobSet/team/set"),
            pod("set-a-0", "n", (0, 1), job="Job/team/set-a", priority=7),
            pod("set-a-1", "n", (2,), job="Job/team/set-a", priority=7),
            pod("set-a-2", job="Job/team/other", wants=1),
        ]
    )
    assert runners(snapshot, PRICES) == (
        Runner(
            key="JobSet/team/set",
            queue="",
            gpus=3,
            borrowed=0,
            priority=7,
            loss=EvictionLoss(3.0, 6.0),
            pods=("team/set-a-0", "team/set-a-1"),
        ),
    )


def test_a_lone_pod_runs_by_itself_and_one_without_gpus_is_nobodys_concern() -> None:
    snapshot = world(
        [node("n", labels={}), pod("p", "n", (0,), started=START), pod("coredns", "n"), pod("waits", wants=1)]
    )
    assert [(one.key, one.gpus, one.loss, one.pods) for one in runners(snapshot, PRICES)] == [
        ("team/p", 1, EvictionLoss(0.0, 0.0), ("team/p",))
    ]


def test_what_a_pod_of_mig_instances_would_lose_is_the_part_of_a_gpu_that_they_are() -> None:
    instances = PodTemplate(containers=(Container(requests={"nvidia.com/mig-1g.10gb": 2}),))
    snapshot = world(
        [
            node("n", labels={}),
            pod("part", "n", template=instances, started=START),
            running_job("Job", "parts"),
            *(pod(f"parts-{n}", "n", job="Job/team/parts", template=instances, started=START) for n in (0, 1)),
        ]
    )
    unit = "MIG 1g.10gb instance"
    found = [(one.key, one.gpus, one.unit, round(one.loss.gpu_hours or 0, 3)) for one in runners(snapshot, PRICES)]
    assert found == [("Job/team/parts", 4, unit, 0.0), ("team/part", 2, unit, 0.0)]


def test_a_job_that_holds_gpus_runs_while_others_of_its_pods_wait() -> None:
    snapshot = world(
        [
            node("n", labels={}),
            replace(running_job("VolcanoJob", "elastic"), min_available=1),
            pod("elastic-0", "n", (0,), job="VolcanoJob/team/elastic"),
            pod("elastic-1", job="VolcanoJob/team/elastic", wants=1),
        ]
    )
    assert [(one.key, one.gpus, one.loss, one.pods) for one in runners(snapshot, PRICES)] == [
        ("VolcanoJob/team/elastic", 1, EvictionLoss(1.0, 2.0), ("team/elastic-0",))
    ]


def test_the_job_that_a_cron_job_made_runs_and_not_the_cron_job() -> None:
    nightly = Job(kind="CronJob", namespace="team", name="nightly", rules=CronRules(schedule="30 3 * * *"))
    snapshot = world(
        [
            node("n", labels={}),
            nightly,
            running_job("Job", "nightly-1", nightly.key),
            pod("nightly-1-0", "n", (0,), job="Job/team/nightly-1"),
        ]
    )
    assert [(one.key, one.gpus) for one in runners(snapshot, PRICES)] == [("Job/team/nightly-1", 1)]


def test_what_is_borrowed_of_a_queue_that_cannot_be_seen_is_not_known() -> None:
    """Who may read a namespace only sees its workloads, and not what their ClusterQueue owns."""
    seen = [thing for thing in ORG if not (isinstance(thing, ClusterQueue) and thing.name == "cq-research")]
    found = {one.key: one.borrowed for one in runners(world(seen), PRICES)}
    assert found == {"research/llm-ft": None, "research/embed": None, "research/rlhf": None, "prod/serve": 0}


def test_a_job_that_lost_pods_and_began_anew_loses_what_it_did_since_then() -> None:
    job = replace(running_job("VolcanoJob", "elastic"), min_available=1)
    again = HistoryEvent(time=START - HOUR // 4, what=HistoryEventKind.STARTED, workload=job.key)
    pods = (pod("elastic-0", "n", (0,), job=job.key), pod("elastic-1", job=job.key, wants=1))
    snapshot = world([node("n", labels={}), job, *pods], recent=[again])

    assert [one.loss for one in runners(snapshot, PRICES)] == [EvictionLoss(0.25, 0.5)]


def test_what_an_eviction_would_cost_is_priced_by_the_nodes_of_its_pods_as_evictions_are() -> None:
    """Six GPUs since twenty minutes: a pod has four, on a machine of another price than the flavor's."""
    prices = Prices(gpu_hour={"a100-80gb": 1.0}, other=3.0)
    things = (
        *ORG,
        node("n", labels={}),
        pod("rlhf-0", "n", (0, 1, 2, 3), workload="research/rlhf", started=START - HOUR // 3),
    )
    (found,) = (one.loss for one in runners(world(things), prices) if one.key == "research/rlhf")
    assert found.gpu_hours == pytest.approx(4 / 3)
    assert found.cost == pytest.approx(4 / 3 * 3.0)
    (plain,) = (one.loss for one in runners(world(ORG), prices) if one.key == "research/rlhf")
    assert plain.cost == pytest.approx(2.0)
