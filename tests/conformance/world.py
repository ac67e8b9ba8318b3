"""From the tables' API objects to a session: decoding, times, gates, and workloads in a form that can be compared."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from msgspec.structs import replace

from gpuconsole.model.clock import Time, parse_time
from gpuconsole.model.manifests import decode_object
from gpuconsole.model.objects import Object
from gpuconsole.model.queues import ClusterQueue, PreemptionPolicy
from gpuconsole.model.resources import amount
from gpuconsole.model.workloads import Admission, Condition, PodSetAssignment, Workload
from gpuconsole.scheduling.kueue.config import KueueConfig, RequeuingStrategy, WaitForPodsReady
from gpuconsole.scheduling.kueue.session import KueueSession
from gpuconsole.scheduling.kueue.state import KueueState
from tests.conformance.tables import NotModelled

Document = Mapping[str, Any]

LONG_AGO: Time = -62_135_596_800_000_000
"""Go's zero time: what an absent creationTimestamp stands for."""

UNSET = cast(PreemptionPolicy, "")
"""A policy that a present `preemption` leaves out, where no API server filled in Never."""


def decode(document: Document) -> Object:
    """One API object; a time that is absent is Go's zero."""
    thing = decode_object(document, now=LONG_AGO)
    if thing is None:
        raise NotModelled(f"{document.get('kind')} {document.get('metadata', {}).get('name')}")
    return _undefaulted(thing, document) if isinstance(thing, ClusterQueue) else thing


def _undefaulted(queue: ClusterQueue, document: Document) -> ClusterQueue:
    """The tables' objects never met an API server: policies that are left out are no word at all, not even Never."""
    listed = (document.get("spec") or {}).get("preemption")
    if listed is None:
        return queue
    preemption = queue.preemption
    if not listed.get("withinClusterQueue"):
        preemption = replace(preemption, within_cluster_queue=UNSET)
    if not listed.get("reclaimWithinCohort"):
        preemption = replace(preemption, reclaim_within_cohort=UNSET)
    borrowing = listed.get("borrowWithinCohort")
    if borrowing is not None and not borrowing.get("policy"):
        preemption = replace(preemption, borrow_within_cohort=replace(preemption.borrow_within_cohort, policy=UNSET))
    return replace(queue, preemption=preemption)


def decode_all(documents: Iterable[Document] | None) -> list[Object]:
    return [decode(document) for document in documents or ()]


def decode_workload(document: Document) -> Workload:
    thing = decode({"kind": "Workload", "apiVersion": "kueue.x-k8s.io/v1beta2", **document})
    assert isinstance(thing, Workload)
    return thing


def clock(value: Any) -> Time:
    """A time, or the clock that shows it."""
    return parse_time(value["$clock"] if isinstance(value, Mapping) else value)


def ordered_by(timestamp: str, gates: Mapping[str, bool]) -> KueueConfig:
    """A configuration with this requeuing timestamp."""
    strategy = RequeuingStrategy(timestamp=timestamp)
    return KueueConfig(wait_for_pods_ready=WaitForPodsReady(requeuing_strategy=strategy), gates=gates)


def session(config: KueueConfig, things: Iterable[Object], now: Time) -> KueueSession:
    """A session that knows these objects; nobody is to be woken."""
    result = KueueSession(config)
    for thing in things:
        result.apply(thing, now)
    result.requeue_inadmissible(now)
    return result


def state(config: KueueConfig, things: Iterable[Object], now: Time) -> KueueState:
    """What such a session knows, for calls of what a cycle is made of."""
    return session(config, things, now)._apply_noted_changes


def admission(document: Document) -> Admission:
    """status.admission as the model has it."""
    body = {"metadata": {"name": "any"}, "status": {"admission": document}}
    found = decode_workload(body).admission
    assert found is not None
    return found


def conditions(documents: Sequence[Document]) -> tuple[Condition, ...]:
    """status.conditions as the model has them."""
    return decode_workload({"metadata": {"name": "any"}, "status": {"conditions": documents}}).conditions


def unobserved(listed: Iterable[Condition]) -> tuple[Condition, ...]:
    """Conditions as the scheduler writes them while the gate UnadmittedWorkloadsObservability is off."""
    waiting = {"WaitingForPodsReady": "Waiting"}
    return tuple(
        replace(c, reason=waiting.get(c.reason, "Pending")) if (c.type, c.status) == ("QuotaReserved", False) else c
        for c in listed
        if (c.type, c.status) != ("Admitted", False)
    )


def comparable(workload: Workload) -> Workload:
    """A workload without what comparisons leave out: the order of conditions, its creation, when checks changed."""
    return replace(
        workload,
        created=0,
        conditions=tuple(sorted(workload.conditions, key=lambda condition: condition.type)),
        checks=tuple(replace(check, since=None) for check in workload.checks),
        admission=plain(workload.admission) if workload.admission is not None else None,
    )


def plain(admission: Admission) -> Admission:
    """An admission with amounts that are nothing left out, so that absent and zero are equal."""
    return replace(admission, pod_sets=tuple(map(_plain, admission.pod_sets)))


def _plain(assignment: PodSetAssignment) -> PodSetAssignment:
    return replace(assignment, flavors=dict(assignment.flavors), usage=dict(assignment.usage))


def amounts(quantities: Mapping[str, str]) -> dict[str, int]:
    """Quantities in base units."""
    return {name: amount(name, quantity) for name, quantity in quantities.items()}
