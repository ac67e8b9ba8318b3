"""What Volcano's webhooks say of jobs, queues, PodGroups, HyperNodes, pods and schedules, in their own words."""

from collections.abc import Mapping
from typing import Any

import pytest

from gpuconsole.model.apiserver.volcano import jobs, message_of
from gpuconsole.model.apiserver.volcano import jobs as flows
from gpuconsole.model.apiserver.volcano import queues_and_pod_groups as groups
from gpuconsole.model.apiserver.volcano import queues_and_pod_groups as hierarchy
from gpuconsole.model.apiserver.volcano.jobs import check_numa
from gpuconsole.model.apiserver.volcano.queues_and_pod_groups import JOB, fits
from tests.support.volcano_webhooks import queue_refusal

Document = Mapping[str, Any]
BOTH = "must not specify 'highestTierAllowed' and 'highestTierName' in networkTopology simultaneously"
TWICE = {"mode": "hard", "highestTierAllowed": 1, "highestTierName": "rack"}
EVENTS = "* PodFailed PodEvicted PodPending Unknown TaskCompleted TaskFailed JobUpdated"
ACTIONS = "AbortJob RestartJob RestartTask RestartPod RestartPartition TerminateJob CompleteJob ResumeJob"


def task(name: str = "w", replicas: int = 2, **more: Any) -> Document:
    return {"name": name, "replicas": replicas, **more}


def job(*tasks: Document, **spec: Any) -> Document:
    return {"metadata": {"name": "j"}, "spec": {"tasks": list(tasks or (task(),)), **spec}}


def policy(event: str = "", action: str = "RestartJob", **more: Any) -> Document:
    return {"action": action, **({"event": event} if event else {}), **more}


def wrong(text: str) -> str:
    """The message about policies."""
    return f"1 error occurred:\n\t* {text}\n\n valid events are [{EVENTS}], valid actions are [{ACTIONS}];"


JOBS: Mapping[str, tuple[Document, str]] = {
    "a job as it should be": (job(minAvailable=2, policies=[policy("PodFailed"), policy(exitCode=3)]), ""),
    "no tasks": ({"metadata": {"name": "j"}, "spec": {}}, "No task specified in job spec"),
    "more pods needed than there are": (
        job(minAvailable=3),
        " job 'minAvailable' should not be greater than total replicas in tasks;",
    ),
    "a task that needs more than it has": (
        job(task(minAvailable=3)),
        " 'minAvailable' is greater than 'replicas' in task: w, job: j;",
    ),
    "two tasks of one name": (job(task(), task()), " duplicated task name w;"),
    "an event and an exit code": (
        job(policies=[policy("PodFailed", exitCode=3)]),
        wrong("must not specify event and exitCode simultaneously"),
    ),
    "neither event nor exit code": (
        job(policies=[policy()]),
        wrong("either event and exitCode should be specified"),
    ),
    "an event that only the controller may name": (
        job(policies=[policy("PodRunning")]),
        wrong('spec.policies: Invalid value: "PodRunning": invalid policy event'),
    ),
    "an action that only the controller takes": (
        job(policies=[policy("PodFailed", "SyncJob")]),
        wrong('spec.policies: Invalid value: "SyncJob": invalid policy action'),
    ),
    "one event in two policies": (
        job(policies=[policy("PodFailed"), {"action": "AbortJob", "events": ["PodEvicted", "PodFailed"]}]),
        wrong("duplicate event PodFailed  across different policy"),
    ),
    "any event beside another": (
        job(policies=[policy("PodFailed"), policy("*")]),
        wrong("if there's * here, no other policy should be here"),
    ),
    "an exit code of zero": (job(policies=[policy(exitCode=0)]), wrong("0 is not a valid error code")),
    "one exit code twice": (job(policies=[policy(exitCode=1)] * 2), wrong("duplicate exitCode 1")),
    "a task's policies are looked at too": (
        job(task(policies=[policy("PodLost")])),
        wrong('spec.tasks.policies: Invalid value: "PodLost": invalid policy event'),
    ),
    "a plugin of the scheduler": (job(plugins={"sla": []}), " unable to find job plugin: sla;"),
    "mpi without its master": (
        job(task("worker"), plugins={"mpi": ["--worker=worker"]}),
        "The specified mpi master task was not found",
    ),
    "mpi with another master": (job(task("launcher"), plugins={"mpi": ["--master=launcher"]}), ""),
    "a volume without a place": (job(volumes=[{}]), " mountPath is required;"),
    "a volume without a claim": (
        job(volumes=[{"mountPath": "/a"}]),
        " either VolumeClaim or VolumeClaimName must be specified;",
    ),
    "two volumes at one place": (
        job(volumes=[{"mountPath": "/a", "volumeClaimName": "a"}] * 2),
        " duplicated mountPath: /a;",
    ),
    "tasks that wait for each other": (
        job(task("a", dependsOn={"name": ["b"]}), task("b", dependsOn={"name": ["a"]})),
        " job has dependencies between tasks, but doesn't form a directed acyclic graph(DAG);",
    ),
    "a task that waits for one that is not there": (
        job(task("a", dependsOn={"name": ["z"]})),
        " job has dependencies between tasks, but doesn't form a directed acyclic graph(DAG);",
    ),
    "tasks that wait in turn": (job(task("a"), task("b", dependsOn={"name": ["a"]})), ""),
    "the highest tier twice": (job(networkTopology=TWICE), BOTH),
    "partitions that do not make up the task": (
        job(task(partitionPolicy={"totalPartitions": 2, "partitionSize": 2})),
        "'Replicas' are not equal to TotalPartitions*PartitionSize in task: w, job: j",
    ),
    "partitions of no pods": (
        job(task(partitionPolicy={"totalPartitions": 2})),
        "'PartitionSize' must be greater than 0 in task: w, job: j",
    ),
    "no partitions": (
        job(task(partitionPolicy={"partitionSize": 2})),
        "'TotalPartitions' must be greater than 0 in task: w, job: j",
    ),
    "a minimum that is no number of partitions": (
        job(
            task(minAvailable=1, partitionPolicy={"totalPartitions": 1, "partitionSize": 2, "minPartitions": 1}),
        ),
        "'MinAvailable' is not equal to MinPartitions*PartitionSize in task: w, job: j",
    ),
    "a pod that asks for less than its containers": (
        job(
            task(
                template={
                    "spec": {
                        "containers": [{"resources": {"requests": {"cpu": "1500m"}}}] * 2,
                        "resources": {"requests": {"cpu": "2"}},
                    }
                }
            )
        ),
        'spec.task[0].template.spec.resources.requests[cpu]: Invalid value: "2": must be greater than or equal to '
        "aggregate container requests of 3. ",
    ),
}


@pytest.mark.parametrize(("document", "message"), JOBS.values(), ids=JOBS)
def test_a_job_is_refused_in_volcanos_words(document: Document, message: str) -> None:
    assert fits(document, JOB)
    assert message_of(jobs.check_job(document)) == message


def queue(name: str, parent: str = "", state: str = "Open", **spec: Any) -> Document:
    pods = spec.pop("pods", None)
    status = {"state": state, **({"allocated": {"pods": pods}} if pods else {})}
    return {"metadata": {"name": name}, "spec": {"parent": parent, **spec}, "status": status}


QUEUES = {
    q["metadata"]["name"]: q
    for q in (
        queue("default"),
        queue("root"),
        queue("shut", state="Closed"),
        queue("org", capability={"cpu": "10"}, deserved={"cpu": "8"}, guarantee={"resource": {"cpu": "8"}}),
        queue("team", "org", guarantee={"resource": {"cpu": "5"}}, deserved={"cpu": "5"}),
        queue("busy", pods="3"),
    )
}


@pytest.mark.parametrize(
    ("name", "message"),
    {
        "default": "",
        "team": "",
        "gone": ' unable to find job queue: queue.scheduling.volcano.sh "gone" not found;',
        "shut": " can only submit job to queue with state `Open`, queue `shut` status is `Closed`;",
        "root": " can not submit job to root queue;",
        "org": " can only submit job to leaf queue, queue `org` has 1 child queues;",
    }.items(),
)
def test_a_job_goes_to_an_open_queue_without_children(name: str, message: str) -> None:
    assert message_of(jobs.check_queue(job(queue=name), QUEUES)) == message


ADMISSIONS: Mapping[str, tuple[Document, str]] = {
    "a queue as it should be": (queue("new", "org", capability={"cpu": "10"}, deserved={"cpu": "2"}), ""),
    "a state that there is not": (
        queue("new", state="Ajar"),
        'requestBody.spec.state: Invalid value: "Ajar": queue state must be in [Open Closed]',
    ),
    "it deserves more than it may have": (
        queue("new", capability={"cpu": "1"}, deserved={"cpu": "2"}),
        'requestBody.spec.deserved.cpu: Invalid value: "2": deserved[cpu]=2 must be <= capability[cpu]=1',
    ),
    "it is guaranteed what it does not deserve": (
        queue("new", guarantee={"resource": {"cpu": "2"}}),
        'requestBody.spec.deserved.cpu: Invalid value: "<nil>": deserved[cpu] must be >= guarantee[cpu]=2',
    ),
    "less than nothing": (
        queue("new", capability={"cpu": "-1"}),
        'requestBody.spec.capability.cpu: Invalid value: "-1": must be greater than or equal to 0',
    ),
    "its own parent": (queue("new", "new"), "queue new cannot use itself as parent"),
    "a parent in which pods run": (
        queue("new", "busy"),
        "queue busy cannot be the parent queue of queue new because it has allocated Pods: 3",
    ),
    "more than its parent may have": (
        queue("new", "org", capability={"cpu": "12"}),
        "queue new capability[cpu]=12 exceeds its ancestor's capability=10",
    ),
    "guarantees that add up to more than the parent's": (
        queue("new", "org", deserved={"cpu": "3500m"}, guarantee={"resource": {"cpu": "3500m"}}),
        "parent queue org validation failed: sum of children's guarantee (cpu 8500.00, memory 0.00) exceeds parent's "
        "guarantee limit (cpu 8000.00, memory 0.00)",
    ),
}


@pytest.mark.parametrize(("document", "message"), ADMISSIONS.values(), ids=ADMISSIONS)
def test_a_queue_has_to_fit_among_the_others(document: Document, message: str) -> None:
    assert queue_refusal(document, None, QUEUES) == message


def test_a_queue_may_not_fall_below_what_its_children_have() -> None:
    smaller = queue("org", capability={"cpu": "10"}, deserved={"cpu": "4"}, guarantee={"resource": {"cpu": "4"}})
    assert queue_refusal(smaller, QUEUES["org"], QUEUES) == (
        "queue org validation failed: sum of children's guarantee (cpu 5000.00, memory 0.00) exceeds parent's guarantee"
        " limit (cpu 4000.00, memory 0.00)"
    )
    assert queue_refusal(QUEUES["org"], QUEUES["org"], QUEUES) == ""


def test_queues_lie_no_deeper_than_allowed() -> None:
    levels = {f"q{n}": queue(f"q{n}", f"q{n - 1}" if n else "root") for n in range(5)}
    assert hierarchy.depth_fault(levels["q4"], levels, 5) == ""
    assert hierarchy.depth_fault(queue("q5", "q4"), levels, 5) == "queue q5 exceeds the maximum allowed depth of 5"


def noted(hierarchy_of: str, weights: str) -> Document:
    notes = {"volcano.sh/hierarchy": hierarchy_of, "volcano.sh/hierarchy-weights": weights}
    return {"metadata": {"name": "new", "annotations": notes}, "spec": {"weight": 1, "reclaimable": False}}


@pytest.mark.parametrize(
    ("given", "message"),
    {
        ("root/a/b", "1/2"): 'Invalid value: "root/a/b": volcano.sh/hierarchy must have the same length with '
        "volcano.sh/hierarchy-weights",
        ("root/a", "1/x"): 'Invalid value: "1/x": x in the 1/x is invalid number: strconv.ParseFloat: parsing "x": '
        "invalid syntax",
        ("root/a", "1/0"): 'Invalid value: "1/0": 0 in the 1/0 must be larger than 0',
        ("root/sci", "1/2"): 'Invalid value: "root/sci": root/sci is not allowed to be in the sub path of root/sci/dev '
        "of queue dev",
    }.items(),
)
def test_annotations_of_a_hierarchy_have_a_weight_for_each_level(given: tuple[str, str], message: str) -> None:
    others = {"dev": {**noted("root/sci/dev", "1/2/8"), "metadata": noted("root/sci/dev", "1/2/8")["metadata"]}}
    assert queue_refusal(noted(*given), None, others) == f"requestBody.metadata.annotations: {message}"


def test_a_task_with_a_numa_policy_asks_for_whole_cpus() -> None:
    half = {"resources": {"limits": {"cpu": "500m"}}}
    given = task(topologyPolicy="restricted", template={"spec": {"containers": [half]}})
    wanted = "the cpu request isn't  an integer in spec.task[2] container[0]."
    assert message_of(check_numa(given, (), 2)) == wanted
    assert not list(check_numa({**given, "topologyPolicy": "none"}, (), 2))


def test_a_pod_group_goes_to_an_open_queue_and_names_its_tier_once() -> None:
    group = {"spec": {"queue": "shut", "subGroupPolicy": [{"name": "p", "networkTopology": TWICE}]}}
    assert message_of(groups.check_group_queue(group, QUEUES)) == (
        "can only submit PodGroup to queue with state `Open`, queue `shut` status is `Closed`. "
    )
    assert message_of(groups.check_group(group)) == f"in subGroupPolicy 'p': {BOTH}."


def test_a_hyper_node_has_members_and_patterns_that_can_be_read() -> None:
    assert message_of(groups.check_hyper_node({"spec": {}})) == "member must have at least one member"
    bad = {"spec": {"members": [{"selector": {"regexMatch": {"pattern": "a["}}}]}}
    assert message_of(groups.check_hyper_node(bad)).startswith("member regexMatch pattern is invalid: ")


@pytest.mark.parametrize(
    ("notes", "message"),
    [
        ({"volcano.sh/jdb-min-available": "2"}, ""),
        ({"volcano.sh/jdb-max-unavailable": "20%"}, ""),
        (
            {"volcano.sh/jdb-min-available": "0"},
            'invalid value <"0"> for volcano.sh/jdb-min-available, it must be a positive integer',
        ),
        (
            {"volcano.sh/jdb-min-available": "100%"},
            'invalid value <"100%"> for volcano.sh/jdb-min-available, it must be a valid percentage which between '
            "1% ~ 99%",
        ),
        (
            {"volcano.sh/jdb-min-available": "1", "volcano.sh/jdb-max-unavailable": "1"},
            "not allow configure multiple annotations <[volcano.sh/jdb-min-available volcano.sh/jdb-max-unavailable]> "
            "at same time",
        ),
    ],
)
def test_a_pod_says_one_budget_of_disruption(notes: Mapping[str, str], message: str) -> None:
    pod = {"metadata": {"annotations": notes}, "spec": {"schedulerName": "volcano"}}
    assert message_of(groups.check_pod(pod)) == message
    assert not list(groups.check_pod({**pod, "spec": {"schedulerName": "default-scheduler"}}))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"schedule": "0 3 * * *", "timeZone": "Europe/Berlin"}, ""),
        ({}, " schedule is required, but got empty"),
        ({"schedule": "0 3 * *"}, "schedule is not a valid cron expression"),
        (
            {"schedule": "TZ=UTC 0 3 * * *"},
            " schedule should not contain TZ or CRON_TZ, TZ should only be set in the timeZone field",
        ),
        ({"schedule": "@daily", "timeZone": "Mars/Base"}, " invalid timeZone"),
    ],
)
def test_a_schedule_has_five_fields_and_a_zone_of_its_own(spec: Document, message: str) -> None:
    assert message_of(flows.check_schedule(spec)) == message


def test_flows_do_not_wait_in_a_circle() -> None:
    def flow(**waits: list[str]) -> Document:
        return {"spec": {"flows": [{"name": n, "dependsOn": {"targets": on}} for n, on in waits.items()]}}

    assert message_of(flows.check_job_flow(flow(a=[], b=["a"], c=["a", "b"]))) == ""
    assert message_of(flows.check_job_flow(flow(a=["b"], b=["a"]))) == "jobflow Flow is not DAG"
    assert message_of(flows.check_job_flow(flow(a=["z"]))) == "jobflow Flow is not DAG: vertex is not defined: z"


def test_a_cron_jobs_name_leaves_room_for_its_jobs() -> None:
    assert message_of(flows.check_cron_name("a" * 52)) == ""
    assert message_of(flows.check_cron_name("a" * 53)).startswith("cronJob name must be no more than 52 characters")
