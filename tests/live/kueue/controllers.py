"""A stand-in for Kueue's controllers: our own engine decides, and this writes on the API server what Kueue would.

It plays the job reconciler (Jobs of batch/v1), the workload controller, the scheduler, and the statuses of queues. What
it writes, and in which order, follows what the real Kueue 0.19.2 was seen to write; the console must not rely on it.
"""

import itertools
import logging
import threading
import time
from collections.abc import Iterable
from contextlib import suppress

import httpx

from gpuconsole.model.clock import Time
from gpuconsole.model.events import Admit, Evict, KeepWaiting, KueueEvent, Preempt, Refuse
from gpuconsole.model.jobs import workload_name
from gpuconsole.model.manifests import decode_object
from gpuconsole.model.objects import TABLES
from gpuconsole.model.queues import ClusterQueue, LocalQueue, ResourceFlavor
from gpuconsole.model.workloads import Condition, Workload
from gpuconsole.scheduling.kueue import apply_decisions, conditions
from gpuconsole.scheduling.kueue.cluster_queue_status import NOT_FOUND
from gpuconsole.scheduling.kueue.conditions import all_checks_ready
from gpuconsole.scheduling.kueue.podset import additions_by_pod_set
from gpuconsole.scheduling.kueue.session import KueueSession
from gpuconsole.scheduling.kueue.workload_controller import reconcile, with_pods_ready_condition
from tests.live.api import Api, Manifest, Refused, path_of
from tests.live.kueue import papers
from tests.live.kueue.mirror import Mirror
from tests.support.decision_events import events_for

LOG = logging.getLogger(__name__)
PATHS = (
    "/api/v1/namespaces",
    "/apis/batch/v1/jobs",
    *(
        f"/apis/kueue.x-k8s.io/v1beta2/{kind}"
        for kind in (
            "admissionchecks",
            "topologies",
            "resourceflavors",
            "cohorts",
            "clusterqueues",
            "localqueues",
            "workloadpriorityclasses",
            "workloads",
        )
    ),
)
BEAT = 0.05
"""Seconds between looks at what changed; also how long queues' statuses lag behind."""
MOST_STEPS = 8
_ENDS = ("Complete", "Failed")

Key = tuple[str, str]


class KueueStandIn:
    """Kueue's controllers in a thread. Mutates; use it as a context manager."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._mirror = Mirror(api, PATHS)
        self._session = KueueSession()
        self._papers: dict[Key, Manifest] = {}
        self._versions: dict[str, int] = {}
        """uid → the newest version seen or written."""
        self._workloads: dict[str, Workload] = {}
        self._dirty_jobs: dict[str, None] = {}
        self._dirty: dict[str, None] = {}
        self._again: dict[str, Time] = {}
        self._said: dict[Key, Manifest] = {}
        self._numbers = itertools.count(time.monotonic_ns())
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "KueueStandIn":
        self._mirror.start()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._mirror.stop()
        self._thread.join(10)

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._turn()
            except (httpx.HTTPError, Refused, RuntimeError):
                # The API server is away, or somebody was faster: all is looked at again.
                LOG.debug("the stand-in's turn failed", exc_info=True)
                self._look_at_everything()
                time.sleep(0.2)

    def _turn(self) -> None:
        """Take in what changed, and do what follows from it."""
        for change in self._mirror.changes(BEAT):
            self._take_in(change.thing, change.gone)
        now = self._now()
        self._dirty.update(dict.fromkeys(key for key, at in self._again.items() if at <= now))
        while self._dirty_jobs or self._dirty:
            while self._dirty_jobs:
                self._reconcile_job(self._pop(self._dirty_jobs))
            while self._dirty:
                self._reconcile(self._pop(self._dirty))
        self._schedule()
        self._tell_of_queues()

    @staticmethod
    def _pop(dirty: dict[str, None]) -> str:
        """The oldest that is to be looked at; it stays listed if looking at it fails."""
        key = next(iter(dirty))
        del dirty[key]
        return key

    @staticmethod
    def _now() -> Time:
        return time.time_ns() // 1000

    def _take_in(self, thing: Manifest, gone: bool) -> None:
        metadata = thing["metadata"]
        uid, version = metadata["uid"], int(metadata["resourceVersion"])
        if version < self._versions.get(uid, 0):
            return
        self._versions[uid] = version
        key = (thing["kind"], "/".join(filter(None, (metadata.get("namespace"), metadata["name"]))))
        if gone:
            self._papers.pop(key, None)
        else:
            self._papers[key] = thing
        self._understand(key, thing, gone)

    def _understand(self, key: Key, thing: Manifest, gone: bool) -> None:
        decoded = decode_object(thing, now=self._now())
        if decoded is None:
            return
        if key[0] == "Job":
            self._dirty_jobs[key[1]] = None
        elif gone:
            self._session.delete(TABLES[type(decoded)], key[1], self._now())
        else:
            self._session.apply(decoded, self._now())
        if isinstance(decoded, Workload):
            if gone:
                self._workloads.pop(key[1], None)
                self._again.pop(key[1], None)
            else:
                self._workloads[key[1]] = decoded
                self._dirty[key[1]] = None
            if decoded.owner.startswith("Job/"):
                self._dirty_jobs[decoded.owner.removeprefix("Job/")] = None
        elif key[0] != "Job":
            self._look_at_everything()

    def _look_at_everything(self) -> None:
        self._dirty.update(dict.fromkeys(self._workloads))
        self._dirty_jobs.update(dict.fromkeys(key for kind, key in self._papers if kind == "Job"))

    # The job reconciler.

    def _reconcile_job(self, key: str) -> None:
        job = self._papers.get(("Job", key))
        if job is None or not job["metadata"].get("labels", {}).get(papers.QUEUE):
            return
        if job["metadata"].get("deletionTimestamp"):
            return
        name = workload_name("Job", job["metadata"]["name"], job["metadata"]["uid"])
        workload = self._workloads.get(f"{job['metadata']['namespace']}/{name}")
        end = next(
            (c for c in job["status"].get("conditions", ()) if c["type"] in _ENDS and c["status"] == "True"), None
        )
        if workload is None:
            if end is None:
                self._begin(job)
        elif end is not None:
            self._finish(workload, end)
        elif workload.admitted and not workload.is_true(conditions.EVICTED):
            self._keep_running(job, workload)
        else:
            self._keep_stopped(job, workload)

    def _begin(self, job: Manifest) -> None:
        """A job that waits gets its Workload; one that runs is stopped first."""
        if not job["spec"].get("suspend"):
            self._stop(job, "Suspended", "Kueue managed child job suspended")
            return
        made = papers.workload_of(job, self._priority(job))
        with suppress(Refused):
            self._take_in(self._api.create(made), gone=False)
            said = f"Created Workload: {made['metadata']['namespace']}/{made['metadata']['name']}"
            self._say(job, KueueEvent("", "CreatedWorkload", said))

    def _priority(self, job: Manifest) -> int:
        name = job["metadata"].get("labels", {}).get(papers.PRIORITY, "")
        known = self._papers.get(("WorkloadPriorityClass", name))
        return int(known["value"]) if known is not None else 0

    def _finish(self, workload: Workload, end: Manifest) -> None:
        reason = "Succeeded" if end["type"] == "Complete" else "Failed"
        done = conditions.mark_finished(workload, reason, end.get("message", ""), self._now())
        if done is not workload:
            said = KueueEvent(workload.key, "FinishedWorkload", f"Workload '{workload.key}' is declared finished")
            self._write(workload, done, (said,))

    def _keep_running(self, job: Manifest, workload: Workload) -> None:
        if job["spec"].get("suspend"):
            self._start(job, workload)
            return
        status = job["status"]
        wanted = min(job["spec"].get("parallelism", 1), job["spec"].get("completions") or 2**31)
        ready = status.get("ready", 0) + status.get("succeeded", 0) >= wanted
        self._write(workload, with_pods_ready_condition(workload, ready, self._now()))

    def _start(self, job: Manifest, workload: Workload) -> None:
        flavors = {
            key: thing
            for (kind, key), paper in self._papers.items()
            if kind == "ResourceFlavor" and isinstance(thing := decode_object(paper), ResourceFlavor)
        }
        ((_, _, added),) = additions_by_pod_set(workload, flavors, self._session.config)
        template = {
            "metadata": {"labels": dict(added.labels), "annotations": dict(added.annotations)},
            "spec": {"nodeSelector": dict(added.node_selector)},
        }
        if job["status"].get("startTime"):
            # A Job that ran before may only be pointed elsewhere as one that never started.
            self._change(job, {"status": {"startTime": None}}, "/status")
        self._change(job, {"spec": {"suspend": False, "template": template}})
        self._say(job, KueueEvent("", "Started", f"Admitted by clusterQueue {workload.cluster_queue}"))

    def _keep_stopped(self, job: Manifest, workload: Workload) -> None:
        if not job["spec"].get("suspend"):
            self._stop(job, "Stopped", (workload.condition(conditions.EVICTED) or _NOT_ADMITTED).message)
        elif workload.reserved and workload.is_true(conditions.EVICTED):
            # Terminating pods are not active (Kueue: `IsActive` of the batch/v1 Job integration).
            if not job["status"].get("active"):
                self._write(workload, conditions.release_quota(workload, self._now()))
        else:
            self._follow_labels(job, workload)

    def _follow_labels(self, job: Manifest, workload: Workload) -> None:
        """A job that waits may be moved to another queue or class by its labels."""
        labels: dict[str, str] = job["metadata"]["labels"]
        change: Manifest = {}
        if labels[papers.QUEUE] != workload.queue:
            change["queueName"] = labels[papers.QUEUE]
        name = labels.get(papers.PRIORITY, "")
        if name and name != workload.priority_class and not workload.finished:
            change |= {"priorityClassRef": papers.workload_class(name), "priority": self._priority(job)}
        if change and workload.admission is None:
            self._change(self._papers["Workload", workload.key], {"spec": change})

    def _stop(self, job: Manifest, reason: str, message: str) -> None:
        self._change(job, {"spec": {"suspend": True}})
        if job["status"].get("startTime"):
            # As Kueue does. The Job controller's status of the same moment conflicts with it and follows 1 s later.
            self._change(job, {"status": {"startTime": None}}, "/status")
        self._say(job, KueueEvent("", reason, message))

    # The workload controller.

    def _reconcile(self, key: str) -> None:
        self._again.pop(key, None)
        for _ in range(MOST_STEPS):
            workload = self._workloads.get(key)
            if workload is None or self._leaving(key):
                return
            now = self._now()
            outcome = reconcile(workload, self._session.look_up_queues(workload), self._session.config, now)
            if outcome.workload is None:
                self._api.delete(path_of(self._papers["Workload", key]))
                return
            if outcome.reconcile_after:
                self._again[key] = now + outcome.reconcile_after
            if outcome.workload is workload and outcome.eviction is None:
                break
            after = outcome.with_deactivation(now) or workload
            if outcome.eviction is not None:
                after = with_pods_ready_condition(after, False, now)
            if not self._write(workload, after, outcome.events):
                break
        self._release_bare(key)

    def _leaving(self, key: str) -> bool:
        return bool(self._papers["Workload", key]["metadata"].get("deletionTimestamp"))

    def _release_bare(self, key: str) -> None:
        """A Workload without a job has no pods that anybody would wait for."""
        workload = self._workloads[key]
        if not workload.owner and workload.reserved and workload.is_true(conditions.EVICTED):
            self._write(workload, conditions.release_quota(workload, self._now()))

    # The scheduler.

    def _schedule(self) -> None:
        session = self._session
        due = session.next_requeue
        if session.has_requeue_due or (due is not None and due <= self._now()):
            session.requeue_inadmissible(self._now())
        while session.has_heads:
            written = [self._carry_out(decision) for decision in session.run_cycle(self._now())]
            # A workload that is gone by now would be admitted again and again if no changes were taken in.
            if not session.has_progressed or not all(written):
                return

    def _carry_out(self, decision: Admit | Preempt | Refuse | Evict | KeepWaiting) -> bool:
        """Write what a decision means for a workload; False if the API server did not take it."""
        workload, now = self._workloads.get(decision.workload), self._now()
        if workload is None:
            return True
        changed = workload
        match decision:
            case Admit():
                changed = self._reserved(workload, decision, now)
            case Preempt() if not workload.is_true(conditions.EVICTED):
                changed = apply_decisions.with_eviction(workload, decision, now)
                changed = with_pods_ready_condition(changed, False, now)
            case Refuse():
                changed = conditions.apply_refusal(workload, decision, now)
            case Evict():
                changed = apply_decisions.with_eviction(workload, decision, now)
            case _:
                return True
        said = events_for(decision, workload, changed, self._workloads, self._session.config, now)
        if not self._write(workload, changed, tuple(said)):
            # The session counts on its own admissions; this one did not come to be.
            self._session.apply(workload, now)
            return False
        if workload.key in self._workloads:
            self._release_bare(workload.key)
        return True

    def _reserved(self, workload: Workload, decision: Admit, now: Time) -> Workload:
        paper = self._papers.get(("ClusterQueue", decision.admission.cluster_queue))
        queue = decode_object(paper) if paper is not None else None
        rules = queue if isinstance(queue, ClusterQueue) else None
        reserved = apply_decisions.with_reservation(workload, decision, rules, now)
        if not all_checks_ready(reserved):
            return reserved
        return with_pods_ready_condition(conditions.sync_admitted(reserved, now), False, now)

    # Statuses of queues.

    def _tell_of_queues(self) -> None:
        pending = {
            key: [one.workload for one in self._session.pending_workloads(key)]
            for kind, key in self._papers
            if kind == "ClusterQueue"
        }
        waiting = [workload for workloads in pending.values() for workload in workloads]
        for key, paper in [(k, p) for k, p in self._papers.items() if k[0] in ("ClusterQueue", "LocalQueue")]:
            queue = decode_object(paper)
            if isinstance(queue, ClusterQueue):
                holding = self._holding(lambda w, name=queue.name: w.cluster_queue == name)
                readiness = self._session.active_condition(queue.name)
                status = papers.cluster_queue_status(queue, holding, len(pending[queue.name]), readiness, self._now())
            elif isinstance(queue, LocalQueue):
                above = self._papers.get(("ClusterQueue", queue.cluster_queue))
                upper = decode_object(above) if above is not None else None
                holding = self._holding(lambda w, key=queue.key: w.local_queue == key)
                count = sum(1 for workload in waiting if workload.local_queue == queue.key)
                ready = self._session.active_condition(queue.cluster_queue) if upper is not None else NOT_FOUND
                upper = upper if isinstance(upper, ClusterQueue) else None
                status = papers.local_queue_status(upper, holding, count, ready, self._now())
            else:
                continue
            self._tell(key, paper, status)

    def _holding(self, belongs: object) -> Iterable[Workload]:
        assert callable(belongs)
        return [w for w in self._workloads.values() if w.reserved and not w.finished and belongs(w)]

    def _tell(self, key: Key, paper: Manifest, status: Manifest) -> None:
        """Write a queue's status if anything but the time of it changed."""
        before = self._said.get(key, {})
        (active,) = status["conditions"]
        for condition in before.get("conditions", ()):
            if condition["status"] == active["status"]:
                active["lastTransitionTime"] = condition["lastTransitionTime"]
        if status != before and self._change(paper, {"status": status}, "/status"):
            self._said[key] = status

    # Writing.

    def _write(self, before: Workload, after: Workload, said: tuple[KueueEvent, ...] = ()) -> bool:
        """Write what changed of a Workload, then tell it; False if the API server did not take it."""
        if after is before and not said:
            return True
        paper = self._papers.get(("Workload", before.key))
        if paper is None:
            return False
        if after.active != before.active and not self._change(paper, {"spec": {"active": after.active}}):
            return False
        if after is not before and not self._change(paper, {"status": papers.workload_status(after)}, "/status"):
            return False
        for announcement in said:
            about = self._papers.get(("Workload", announcement.workload))
            if about is not None:
                self._say(about, announcement)
        return True

    def _change(self, paper: Manifest, change: Manifest, subresource: str = "") -> bool:
        try:
            changed = self._api.patch(path_of(paper) + subresource, change)
        except Refused as refused:
            LOG.debug("%s", refused)
            return False
        self._take_in(changed, gone=False)
        return True

    def _say(self, about: Manifest, said: KueueEvent) -> None:
        with suppress(Refused):
            self._api.create(papers.event(about, said, next(self._numbers), self._now()))


def _end(job: Manifest) -> Manifest | None:
    """The condition that says how a Job ended."""
    for condition in job["status"].get("conditions", ()):
        if condition["type"] in _ENDS and condition["status"] == "True":
            found: Manifest = condition
            return found
    return None


_NOT_ADMITTED = Condition(conditions.EVICTED, False, "", "Not admitted by cluster queue")
