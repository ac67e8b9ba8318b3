"""KAI's tables of what pods and pod groups are told: conditions and events."""

import re
from collections.abc import Iterator, Sequence

from gpuconsole.model.cluster import Pod
from gpuconsole.model.events import MarkGroup, Unschedulable
from gpuconsole.model.kai import KaiPodGroup
from gpuconsole.scheduling.kai.api.jobs import PodGroupInfo, single_pod_set_tree
from gpuconsole.scheduling.kai.api.tasks import PodInfo
from gpuconsole.scheduling.kai.engine import status_updates
from gpuconsole.scheduling.kai.messages import JobError, NodeError, TaskErrors
from tests.conformance.kai import values
from tests.conformance.kai.groups import group_of
from tests.conformance.kai.sessions import root_of
from tests.conformance.kai.values import STATUSES
from tests.conformance.tables import Case, Check, NotModelled, Table, compare


def _said(job: PodGroupInfo, group: KaiPodGroup) -> tuple[str, tuple[str, ...], dict[str, str], set[str]]:
    """The group's message and reasons, the message of each pod, and what events say."""
    pods = {task.uid: Pod(name=task.name) for task in job.tasks()}
    told = status_updates(job, pods, group, "")
    marks = [word for word in told if isinstance(word, MarkGroup)]
    texts = {word.pod: word.message for word in told if isinstance(word, Unschedulable)}
    return (
        marks[0].message if marks else "",
        tuple(reason for reason, _ in marks[0].reasons) if marks else (),
        texts,
        {word.story for word in told if isinstance(word, Unschedulable)},
    )


def status_event(table: Table, case: Case) -> Sequence[str]:
    tasks = [
        PodInfo(name, job="pg", status=STATUSES[status])
        for status, names in case.input["pods"].items()
        for name in names or ()
    ]
    told = {local["name"]: local["value"] for local in case.document.get("locals") or ()}
    if "podGroup" not in told:
        raise NotModelled("the pod group is not told")
    group = group_of(told["podGroup"])
    job = PodGroupInfo("pg", root=single_pod_set_tree(case.input.get("podGroupMinMember", 0)), tasks=tasks)
    for error in case.input.get("jobErrors") or ():
        job.errors.append(JobError(reason=error["reason"], messages=(error["message"],)))
    for name, error in (case.input.get("podErrors") or {}).items():
        job.add_task_errors(next(task for task in tasks if task.uid == name), TaskErrors(error["$error"]))
    for name, nodes in (case.input.get("nodeErrors") or {}).items():
        errors = TaskErrors()
        errors.nodes.update((node, NodeError((text,))) for node, text in nodes.items())
        job.add_task_errors(next(task for task in tasks if task.uid == name), errors)
    message, reasons, texts, stories = _said(job, group)
    wanted = case.want.get("expectedPodgroupConditionReasons")
    return [
        *_match("group", message, case.want.get("expectedPodgroupErrorPatterns")),
        *(
            line
            for story in sorted(stories)
            for line in _match("event", story, case.want.get("expectedPodgroupEventPatterns"))
        ),
        *(
            line
            for field in ("expectedPodErrorPatterns", "expectedPodEventPatterns")
            for pod, patterns in (case.want.get(field) or {}).items()
            for line in _match(pod, texts.get(pod, ""), patterns)
        ),
        *(compare("reasons", sorted(reasons), sorted(wanted)) if wanted else ()),
    ]


def _match(what: str, text: str, patterns: Sequence[str] | None) -> Iterator[str]:
    return (f"{what}: {pattern!r} is not in {text!r}" for pattern in patterns or () if not re.search(pattern, text))


def readiness(table: Table, case: Case) -> Sequence[str]:
    """What pods and groups are told, as events; a group that is not ready is told by its pods here."""
    document = case.input["job"]
    tree_document = document.get("RootSubGroupSet")
    tasks = [
        values.task({"UID": uid, **pod, "SubGroupName": pod_set["name"]})
        for pod_set in (tree_document or {}).get("podSets") or ()
        for uid, pod in (pod_set.get("podInfos") or {}).items()
    ] or [PodInfo(pod["Name"], status=STATUSES[pod["State"]]) for pod in document["Tasks"]]
    for task in tasks:
        task.pod_set = "" if task.pod_set == "default" else task.pod_set
    job = PodGroupInfo(document["Name"], root=root_of(tree_document, tasks), tasks=tasks)
    message, _, texts, _ = _said(job, KaiPodGroup(name="pg"))
    got = {f"Warning Unschedulable {text}" for text in texts.values()} if job.is_ready else set()
    got |= {f"Normal Unschedulable {message}"} if message else set()
    got |= set() if job.is_ready else {f"Normal NotReady {text}" for text in texts.values()}
    return list(compare("events", got, set(case.want["expectedEventActions"])))


CHECKS: dict[str, Check] = {
    "kai/scheduler_cache/TestRecordJobStatusEvent": status_event,
    "kai/scheduler_cache_status_updater/TestDefaultStatusUpdater_RecordJobStatusEvent": readiness,
}
