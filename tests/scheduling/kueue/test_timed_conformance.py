"""The bare mode with seconds: Kueue's controllers between two cycles, and what wakes whom."""

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from gpuconsole.sim.conformance_run import run

KUEUE = "kueue.x-k8s.io/v1beta2"
GPU = "nvidia.com/gpu"
START = "2026-01-05T08:00:00Z"
LOWER = {"withinClusterQueue": "LowerPriority"}


def thing(kind: str, name: str, spec: Mapping[str, Any], **meta: Any) -> dict[str, Any]:
    metadata = {"name": name, "uid": name, "creationTimestamp": START, **meta}
    return {"apiVersion": KUEUE, "kind": kind, "metadata": metadata, "spec": dict(spec)}


def queue(name: str, gpus: int, **more: Any) -> dict[str, Any]:
    flavor = {"name": "f", "resources": [{"name": GPU, "nominalQuota": str(gpus)}]}
    groups = [{"coveredResources": [GPU], "flavors": [flavor]}]
    return thing("ClusterQueue", name, {"namespaceSelector": {}, "resourceGroups": groups, **more})


def door(name: str, cluster_queue: str, **more: Any) -> dict[str, Any]:
    return thing("LocalQueue", name, {"clusterQueue": cluster_queue, **more}, namespace="team")


def cohort(name: str, **spec: Any) -> dict[str, Any]:
    return thing("Cohort", name, spec)


def work(name: str, gpus: int, priority: int = 0, queue: str = "a", ends: int = 0, **more: Any) -> dict[str, Any]:
    containers = [{"name": "c", "image": "i", "resources": {"requests": {GPU: str(gpus)}}}]
    pod_set = {"name": "main", "count": 1, "template": {"spec": {"containers": containers}}}
    spec = {"queueName": queue, "priority": priority, "podSets": [pod_set], **more}
    notes = {"conformance/termination-seconds": str(ends)} if ends else {}
    return thing("Workload", name, spec, namespace="team", annotations=notes)


def play(objects: Iterable[dict[str, Any]], *steps: Mapping[str, Any], **more: Any) -> list[dict[str, Any]]:
    """The entries of a scenario, without messages."""
    base = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}, thing("ResourceFlavor", "f", {})]
    every = [{"advanceSeconds": 0, "maxCycles": 30, **step} for step in steps]
    scenario = {"name": "", "start": START, "seconds": True, "objects": [*base, *objects], "steps": every, **more}
    return [_plain(entry) for entry in run(scenario)["cycles"]]


def _plain(entry: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in entry.items() if key not in ("activeBefore", "step")}
    for key in ("admitted", "preempted", "evicted", "pending"):
        if key in kept:
            kept[key] = [one["workload"].removeprefix("team/") for one in kept[key]]
    for key in ("released", "admittedAfterChecks"):
        if key in kept:
            kept[key] = [name.removeprefix("team/") for name in kept[key]]
    for key in ("activeAfter", "inadmissibleAfter"):
        if key in kept:
            kept[key] = {q: [name.removeprefix("team/") for name in names] for q, names in kept[key].items()}
    return kept


def test_a_preemptor_gets_its_quota_a_second_after_the_pods_of_its_victim_are_gone() -> None:
    objects = [queue("q", 4, preemption=LOWER), door("a", "q")]
    entries = play(objects, {"create": [work("low", 4, ends=5)]}, {"create": [work("high", 4, priority=1)]})
    assert entries == [
        {"at": 1, "admitted": ["low"]},
        {"at": 2, "preempted": ["low"], "pending": ["high"], "activeAfter": {"q": ["high"]}},
        {"at": 3, "activeAfter": {"q": ["high"]}},
        {"at": 7, "released": ["low"], "admitted": ["high"], "activeAfter": {"q": ["low"]}},
        {"at": 8, "pending": ["low"], "inadmissibleAfter": {"q": ["low"]}},
    ]


def test_a_cluster_queue_that_leaves_its_cohort_wakes_nobody_there() -> None:
    objects = [
        *(queue("q", 4, cohortName="c"), queue("r", 0, cohortName="c")),
        *(door("a", "q"), door("b", "r")),
    ]
    waits = {"create": [work("one", 5), work("two", 9, queue="b")]}
    left = play(objects, waits, {"apply": [queue("q", 4)]})
    assert [entry["inadmissibleAfter"] for entry in left] == [
        {"q": ["one"], "r": ["two"]},
        {"q": ["one"], "r": ["two"]},
    ]
    assert [entry["at"] for entry in left] == [1, 2]
    more = play(objects, waits, {"apply": [queue("q", 4, cohortName="c", preemption=LOWER)]})
    assert [entry.get("activeAfter") for entry in more] == [None, None]
    assert [entry.get("pending") for entry in more] == [["one", "two"], None]


@pytest.mark.parametrize(("tree", "tried"), [(("c",), [1]), (("c", "root"), [1, 2])])
def test_a_write_of_a_cluster_queue_wakes_its_tree_where_a_cohort_below_the_root_is_an_object(
    tree: tuple[str, ...], tried: list[int]
) -> None:
    parents = [cohort("c", **({"parentName": "root"} if "root" in tree else {}))]
    objects = [queue("q", 4, cohortName="c"), door("a", "q"), *parents]
    entries = play(objects, {"create": [work("one", 5)]}, {"apply": [queue("q", 4, cohortName="c")]})
    assert [entry["at"] for entry in entries] == tried


def test_workloads_of_a_stopped_local_queue_wake_nobody_when_they_leave() -> None:
    objects = [queue("q", 4), door("a", "q"), door("b", "q")]
    begin = {"create": [work("runs", 4, queue="b"), work("waits", 4)], "maxCycles": 2}
    hold = {"apply": [door("b", "q", stopPolicy="Hold")]}
    assert play(objects, begin, hold, {"finish": ["team/runs"]})[-1]["at"] == 2
    assert play(objects, begin, {"finish": ["team/runs"]})[-1]["admitted"] == ["waits"]


def test_a_local_queue_that_opens_brings_its_workloads_back_though_their_shape_was_refused() -> None:
    objects = [queue("q", 4), door("a", "q"), door("b", "q")]
    begin = {"create": [work("runs", 4), work("waits", 4), work("too", 4, queue="b")], "maxCycles": 3}
    entries = play(
        objects,
        begin,
        {"apply": [door("b", "q", stopPolicy="Hold")]},
        {"apply": [door("b", "q", stopPolicy="None")], "maxCycles": 1},
    )
    assert entries[1]["inadmissibleAfter"] == {"q": ["too", "waits"]}
    assert (entries[-2]["noCycle"], entries[-2]["inadmissibleAfter"]) == (True, {"q": ["waits"]})
    assert entries[-1]["inadmissibleAfter"] == {"q": ["too", "waits"]}
    assert not entries[-1].get("noCycle")


def test_a_workload_whose_pods_were_late_is_in_no_queue_until_its_back_off_ends() -> None:
    late = {"timeout": "10s", "requeuingStrategy": {"backoffBaseSeconds": 20, "backoffMaxSeconds": 60}}
    entries = play(
        [queue("q", 4), door("a", "q")],
        {"create": [work("late", 4)], "maxSeconds": 45},
        waitForPodsReady={**late, "timeout": "10s"},
    )
    assert entries == [
        {"at": 1, "admitted": ["late"]},
        {"at": 11, "noCycle": True, "evicted": ["late"], "released": ["late"]},
        {"at": 31, "admitted": ["late"]},
        {"at": 41, "noCycle": True, "evicted": ["late"], "released": ["late"]},
    ]


def test_a_cycle_that_is_blocked_waits_and_then_goes_on() -> None:
    objects = [queue("q", 4), queue("r", 4), door("a", "q"), door("b", "r")]
    entries = play(
        objects,
        {"create": [work("one", 2, 1), work("two", 2, queue="b"), work("three", 2, queue="b")], "maxSeconds": 1},
        {"ready": [{"workload": "team/one", "ready": True}], "advanceSeconds": 4},
        waitForPodsReady={"timeout": "60s", "blockAdmission": True},
    )
    assert entries[:2] == [
        {"at": 1, "admitted": ["one"], "pending": ["three"], "activeAfter": {"r": ["two"]}},
        {"at": 6, "admitted": ["three"], "activeAfter": {"r": ["two"]}},
    ]


def test_one_that_leaves_while_its_cycle_waits_is_not_admitted() -> None:
    objects = [queue("q", 4), queue("r", 4), door("a", "q"), door("b", "r")]
    entries = play(
        objects,
        {"create": [work("one", 2, priority=1), work("two", 2, queue="b")], "maxCycles": 1},
        {"ready": [{"workload": "team/one", "ready": True}], "delete": ["team/two"], "maxCycles": 1},
        waitForPodsReady={"timeout": "60s", "blockAdmission": True},
    )
    assert entries == [{"at": 1, "admitted": ["one"], "pending": ["two"]}, {"at": 2}]


def test_a_cluster_queue_that_is_removed_stays_until_nobody_holds_its_quota() -> None:
    objects = [queue("q", 4), door("a", "q")]
    begin = {"create": [work("runs", 4), work("waits", 1)], "maxCycles": 1}
    entries = play(objects, begin, {"remove": ["ClusterQueue/q"]}, {"finish": ["team/runs"]})
    assert entries == [
        {"at": 1, "admitted": ["runs"], "activeAfter": {"q": ["waits"]}},
        {"at": 1, "noCycle": True, "pending": ["waits"], "activeAfter": {"q": ["waits"]}},
        {"at": 1, "noCycle": True, "pending": ["waits"]},
    ]


def test_workloads_of_an_inactive_cluster_queue_are_not_preempted() -> None:
    any_of_them = {"reclaimWithinCohort": "Any"}
    objects = [
        *(queue("q", 4, cohortName="c", preemption=any_of_them), queue("r", 0, cohortName="c")),
        *(door("a", "q"), door("b", "r")),
    ]
    begin = {"create": [work("borrows", 4, queue="b")], "maxCycles": 1}
    preemptor = {"create": [work("owner", 4)]}
    held = {"apply": [queue("r", 0, cohortName="c", stopPolicy="Hold")]}
    assert play(objects, begin, preemptor)[1]["preempted"] == ["borrows"]
    assert not any("preempted" in entry for entry in play(objects, begin, held, preemptor))


def test_a_check_that_says_retry_sends_a_workload_back() -> None:
    check = thing("AdmissionCheck", "ok", {"controllerName": "x"})
    check["status"] = {"conditions": [{"type": "Active", "status": "True", "reason": "Active", "message": ""}]}
    objects = [queue("q", 4, admissionChecksStrategy={"admissionChecks": [{"name": "ok"}]}), door("a", "q"), check]

    def said(state: str, **more: Any) -> dict[str, Any]:
        return {"checks": [{"workload": "team/one", "check": "ok", "state": state, **more}]}

    begin = {"create": [work("one", 2)], "maxCycles": 1}
    assert play(objects, begin, {"advanceSeconds": 3, **said("Retry", requeueAfterSeconds=10)}, said("Ready")) == [
        {"at": 1, "admitted": ["one"]},
        {"at": 14, "admitted": ["one"], "evicted": ["one"], "released": ["one"]},
        {"at": 14, "noCycle": True, "admittedAfterChecks": ["one"]},
    ]


def test_what_is_removed_is_named_by_kind() -> None:
    with pytest.raises(ValueError, match="remove: 'queue/q' is not Kind/name or Kind/namespace/name of a known kind"):
        play([queue("q", 4)], {"remove": ["queue/q"]})
