"""Volcano's tables of shares: what queues and jobs have and deserve, inside the plugins that say it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from math import isclose
from typing import Any, TypeVar

from gpuconsole.model.devices import ResourceClaim
from gpuconsole.model.manifests import decode_object
from gpuconsole.model.resources import amount
from gpuconsole.model.volcano import VolcanoQueue
from gpuconsole.scheduling.volcano.api.job import JobInfo
from gpuconsole.scheduling.volcano.api.queue import QueueAttributes, QueueInfo, unallocated_min_resources
from gpuconsole.scheduling.volcano.api.resource import Resource
from gpuconsole.scheduling.volcano.api.task import DraResource
from gpuconsole.scheduling.volcano.config import EnabledFlag
from gpuconsole.scheduling.volcano.plugins.capacity import CapacityPlugin, CapacityQueueAttributes
from gpuconsole.scheduling.volcano.plugins.drf import DrfPlugin
from gpuconsole.scheduling.volcano.plugins.job_enqueueing import OvercommitPlugin
from gpuconsole.scheduling.volcano.plugins.proportion import ProportionPlugin
from gpuconsole.scheduling.volcano.scheduler_conf import read_configuration
from gpuconsole.scheduling.volcano.session import VolcanoSession
from gpuconsole.scheduling.volcano.session_plugins import EvictionContext, VictimRequester
from gpuconsole.scheduling.volcano.store import ResourceClaimMissing, claimed_devices, total_devices
from tests.conformance.tables import Case, Check, Table, compare
from tests.conformance.volcano import common, objects

Document = Mapping[str, Any]
P = TypeVar("P")
AMOUNTS = {
    "deserved": "deserved",
    "allocated": "allocated",
    "request": "request",
    "elastic": "elastic",
    "inqueue": "inqueue",
    "realCapability": "real_capability",
    "guarantee": "guarantee",
}


def plugin_of(session: VolcanoSession, kind: type[P]) -> P:
    """The plugin of this kind that the session has."""
    return next(plugin for plugin in session.plugins if isinstance(plugin, kind))


def books_of(session: VolcanoSession) -> Mapping[str, QueueAttributes]:
    """What the session's proportion or capacity knows of the queues."""
    for plugin in session.plugins:
        match plugin:
            case ProportionPlugin():
                return plugin.queues
            case CapacityPlugin():
                return plugin.queues.attributes
    return {}


def amounts(what: str, got: Resource, want: Document | None) -> Iterator[str]:
    """Differences of two vectors; what is absent is 0, and tables round to a byte's tenth."""
    wanted = objects.resource(want)
    names = ["cpu", "memory", *{**(got.scalars or {}), **(wanted.scalars or {})}]
    for name in names:
        if not isclose(got.get(name), wanted.get(name), rel_tol=1e-9, abs_tol=0.06):
            yield f"{what} {name}: got {got.get(name)}, want {wanted.get(name)}"


def queues(session: VolcanoSession, wanted: Mapping[str, Document], fields: Sequence[str]) -> Iterator[str]:
    """Differences between what is known of queues and what a table says of them."""
    books = books_of(session)
    for name, want in wanted.items():
        book = books.get(name)
        if book is None:
            yield f"queue {name} is not counted"
            continue
        if abs(book.share - want.get("share", 0)) > 0.0006:
            yield f"share of {name}: got {book.share}, want {want.get('share', 0)}"
        for field in fields:
            yield from amounts(f"{field} of {name}", getattr(book, AMOUNTS[field]), want.get(field))


def generated(table: Table, case: Case) -> Sequence[str]:
    """Shares when the session opens, what became of each job, shares at the end."""
    session = common.opened(common.settings(table, case), case.input)
    want = case.want
    differences = list(queues(session, want.get("queuesAtOpen") or {}, tuple(AMOUNTS)))
    drf = plugin_of(session, DrfPlugin)
    for uid, share in (want.get("drfShareAtOpen") or {}).items():
        if abs(drf.shares[uid] - share) > 0.0006:
            differences.append(f"share of {uid}: got {drf.shares[uid]}, want {share}")
    common.act(session)
    differences += _jobs(session, want.get("jobs") or {})
    differences += queues(session, want.get("queuesAtClose") or {}, ("allocated", "inqueue"))
    return differences


def _jobs(session: VolcanoSession, wanted: Mapping[str, Document]) -> Iterator[str]:
    for uid, want in wanted.items():
        job = session.jobs[uid]
        yield from compare(f"queue of {uid}", job.queue, want["queue"])
        yield from compare(f"phase of {uid}", job.phase, want.get("phase", ""))
        counts = {status.label: len(tasks) for status, tasks in job.task_status_index.items()}
        yield from compare(f"tasks of {uid}", counts, want.get("taskStatusNums") or {})
        if "tasks" in want:
            tasks = {task.key: f"{task.status.label} {task.node_name}".strip() for task in job.tasks.values()}
            yield from compare(f"where {uid} is", tasks, want["tasks"])


def _proportion(table: Table, case: Case) -> Sequence[str]:
    """Shares when the first session opens, before anything was deleted; the later sessions see fewer pods."""
    given = case.input
    made = {"Pods": given["pods"], "Nodes": given["nodes"], "PodGroups": given["pgs"], "PriClass": given["pcs"]}
    made["Queues"] = list(table.fixtures.values())
    differences: list[str] = []
    for one, seen in zip(case.document["observed"], (given["pods"], given["pods"][2:], ()), strict=True):
        groups = given["pgs"] if seen is given["pods"] else given["pgs"][1:] if seen else ()
        session = common.opened(case.document["session"], {**made, "Pods": seen, "PodGroups": groups})
        wanted = one["pluginsAtOpen"]["proportion"]["queueOpts"]
        differences += compare("queues", sorted(books_of(session)), sorted(wanted))
        differences += queues(session, wanted, tuple(AMOUNTS))
    return differences


def _hdrf(table: Table, case: Case) -> Sequence[str]:
    session = common.run(common.settings(table, case), case.input)
    by_name = {job.name: job for job in session.jobs.values()}
    wanted = case.want["expected"].items()
    return [text for name, want in wanted for text in amounts(f"job {name}", by_name[name].allocated, want)]


def _capacity_share(table: Table, case: Case) -> Sequence[str]:
    queue = QueueInfo(VolcanoQueue(name="test-queue"))
    book = CapacityQueueAttributes(queue, devices=False, by_amount=False)
    book.deserved = objects.resource(case.input.get("deserved"))
    book.allocated = objects.resource(case.input.get("allocated"))
    book.request = objects.resource(case.input.get("request"))
    book.update_share()
    return list(compare("share", book.share, case.want.get("wantShare", 0)))


def _enqueueable(table: Table, case: Case) -> Sequence[str]:
    """Every job is told that it was let in, then asked whether it may be."""
    session = common.opened(common.settings(table, case), case.input)
    assert plugin_of(session, OvercommitPlugin)
    differences: list[str] = []
    for job in session.jobs.values():
        session.job_enqueued(job)
        differences += compare(job.uid, session.job_enqueueable(job), case.want.get("expectedEnqueueAble", False))
    return differences


def _dispensable(table: Table, case: Case) -> Sequence[str]:
    session = common.opened(common.settings(table, case), case.input)
    candidates = [objects.task(document) for document in case.input["preemptees"]]
    got = session.preemptable(candidates[0], candidates) or []
    wanted = [document["UID"] for document in case.want.get("expectVictims") or ()]
    return list(compare("victims", [task.uid for task in got], wanted))


def _gang_victims(table: Table, case: Case) -> Sequence[str]:
    """Between queues all candidates may go for a gang, inside one only those of lower priority."""
    session = common.opened(common.settings(table, case), case.input)
    tasks = {task.key: task for job in session.jobs.values() for task in job.tasks.values()}
    candidates = [tasks[one["$task"]] for one in case.variables["candidates"]]
    job = JobInfo(case.variables["reclaimJob"]["UID"])
    job.priority = case.variables["reclaimJob"]["Priority"]
    differences: list[str] = []
    for kind, name in (
        (VictimRequester.GANG_RECLAIM, "reclaimResult"),
        (VictimRequester.GANG_PREEMPT, "preemptResult"),
    ):
        got = session.unified_evictable(EvictionContext(kind, job), candidates) or []
        wanted = [one["$task"] for one in case.variables.get(name) or ()]
        differences += compare(name, [task.key for task in got], wanted)
    return differences


def _reserved(table: Table, case: Case) -> Sequence[str]:
    job = JobInfo("ns/job")
    job.set_pod_group(objects.pod_group({"spec": {"minResources": case.input["minRes"]}}))
    job.allocated = objects.resource(case.input.get("allocated"))
    return list(amounts("reserved", unallocated_min_resources(job), case.want.get("expected")))


def _defaults(table: Table, case: Case) -> Sequence[str]:
    """Flags that a configuration does not name hold; those that it denies do not."""
    said = case.input["args"]["option"]
    conf = json.dumps({"actions": "enqueue", "tiers": [{"plugins": [said]}]})
    enabled = read_configuration(conf).configuration.tiers[0][0].enabled
    names = [name.removeprefix("Enabled").removeprefix("Enable") for name in case.variables["fields"]]
    flags = {flag.value.lower().removeprefix("enabled").removeprefix("enable"): flag for flag in EnabledFlag}
    got = {name: flags[name.lower()] in enabled for name in names}
    return list(compare("flags", got, dict.fromkeys(names, case.want["expected"])))


def _claimed(table: Table, case: Case) -> Sequence[str]:
    documents = case.input.get("claims") or ()
    claims = {f"{one.namespace}/{one.name}": one for one in map(_claim, documents)}
    try:
        found = total_devices(claimed_devices(objects.pod(case.input["pod"]), claims))
    except ResourceClaimMissing:
        return list(compare("is missing", True, case.want["expectErr"]))
    wanted = {
        name: DraResource(
            one.get("Count", 0), {key: amount(key, value) for key, value in (one.get("Capacity") or {}).items()}
        )
        for name, one in (case.want.get("expectedResreq") or {}).items()
    }
    return [*compare("claimed", found, wanted), *compare("is missing", False, case.want["expectErr"])]


def _claim(document: Document) -> ResourceClaim:
    claim = decode_object(document, now=objects.LONG_AGO)
    assert isinstance(claim, ResourceClaim)
    return claim


GENERATED = ("CapacityHierarchyAllocate", "CapacityHierarchyReclaim", "ProportionAllocate", "ProportionReclaimPreempt")
CHECKS: dict[str, Check] = {
    **{f"volcano/scheduler_generated/{name}": generated for name in GENERATED},
    "volcano/scheduler_plugins_proportion/TestProportion": _proportion,
    "volcano/scheduler_plugins_drf/TestHDRF": _hdrf,
    "volcano/scheduler_plugins_capacity/Test_updateQueueAttrShare": _capacity_share,
    "volcano/scheduler_plugins_overcommit/TestOvercommitPlugin": _enqueueable,
    "volcano/scheduler_plugins_conformance/TestConformancePlugin": _dispensable,
    "volcano/scheduler_plugins_util/TestGetInqueueResource": _reserved,
    "volcano/scheduler_plugins/TestApplyPluginConfDefaults": _defaults,
    "volcano/scheduler_cache/TestBuildTaskDRAResreq": _claimed,
    "volcano/scheduler_plugins_priority/TestUnifiedEvictableFn_GangReclaimPermitsAll": _gang_victims,
}
