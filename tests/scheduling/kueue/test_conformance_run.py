"""The bare mode: a scenario in, cycles out."""

import json
from typing import Any

from gpuconsole.sim.conformance_run import run, run_lines

KUEUE = "kueue.x-k8s.io/v1beta2"
GPU = "nvidia.com/gpu"


def thing(kind: str, name: str, spec: dict[str, Any], **meta: str) -> dict[str, Any]:
    metadata = {"name": name, "uid": name, "creationTimestamp": "2026-01-05T08:00:00Z", **meta}
    return {"apiVersion": KUEUE, "kind": kind, "metadata": metadata, "spec": spec}


def work(name: str, gpus: int, priority: int = 0) -> dict[str, Any]:
    containers = [{"name": "c", "image": "i", "resources": {"requests": {GPU: str(gpus)}}}]
    pod_set = {"name": "main", "count": 1, "template": {"spec": {"containers": containers}}}
    return thing("Workload", name, {"queueName": "lq", "priority": priority, "podSets": [pod_set]}, namespace="team")


QUEUE = thing(
    "ClusterQueue",
    "q",
    {
        "namespaceSelector": {},
        "preemption": {"withinClusterQueue": "LowerPriority"},
        "resourceGroups": [
            {"coveredResources": [GPU], "flavors": [{"name": "f", "resources": [{"name": GPU, "nominalQuota": "4"}]}]}
        ],
    },
)
SCENARIO: dict[str, Any] = {
    "name": "small",
    "start": "2026-01-05T08:00:00Z",
    "objects": [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}},
        thing("ResourceFlavor", "f", {}),
        QUEUE,
        thing("LocalQueue", "lq", {"clusterQueue": "q"}, namespace="team"),
    ],
    "steps": [
        {"advanceSeconds": 1, "create": [work("low", 3), work("wait", 2)], "maxCycles": 5},
        {"advanceSeconds": 1, "create": [work("high", 4, 10)], "maxCycles": 5},
        {"advanceSeconds": 1, "finish": ["team/high"], "maxCycles": 5},
    ],
}


def granted(name: str, gpus: int) -> dict[str, Any]:
    pod_set = {"name": "main", "count": 1, "flavors": {GPU: "f"}, "usage": {GPU: str(gpus)}}
    return {"workload": f"team/{name}", "clusterQueue": "q", "podSets": [pod_set]}


def told(name: str, missing: int, more: str = "") -> dict[str, str]:
    message = f"insufficient unused quota for {GPU} in flavor f, {missing} more needed"
    return {
        "workload": f"team/{name}",
        "reason": "Pending",
        "message": f"couldn't assign flavors to pod set main: {message}{more}",
    }


def test_a_scenario_cycle_by_cycle() -> None:
    low, wait, high = "team/low", "team/wait", "team/high"
    evicted = {
        "workload": low,
        "reason": "InClusterQueue",
        "message": "Preempted to accommodate a workload (UID: high, JobUID: UNKNOWN) due to prioritization in the "
        "ClusterQueue; preemptor path: /q; preemptee path: /q",
    }
    assert run(SCENARIO) == {
        "name": "small",
        "cycles": [
            {
                "step": 0,
                "activeBefore": {"q": [low, wait]},
                "admitted": [granted("low", 3)],
                "activeAfter": {"q": [wait]},
            },
            {
                "step": 0,
                "activeBefore": {"q": [wait]},
                "inadmissibleAfter": {"q": [wait]},
                "pending": [told("wait", 1)],
            },
            {
                "step": 1,
                "activeBefore": {"q": [high]},
                "preempted": [evicted],
                "activeAfter": {"q": [high, low, wait]},
                "pending": [told("high", 3, ". Pending the preemption of 1 workload(s)")],
            },
            {
                "step": 1,
                "activeBefore": {"q": [high, low, wait]},
                "admitted": [granted("high", 4)],
                "activeAfter": {"q": [low, wait]},
            },
            {
                "step": 1,
                "activeBefore": {"q": [low, wait]},
                "activeAfter": {"q": [wait]},
                "inadmissibleAfter": {"q": [low]},
                "pending": [told("low", 3)],
            },
            {
                "step": 1,
                "activeBefore": {"q": [wait]},
                "inadmissibleAfter": {"q": [low, wait]},
                "pending": [told("wait", 2)],
            },
            {
                "step": 2,
                "activeBefore": {"q": [low, wait]},
                "admitted": [granted("low", 3)],
                "activeAfter": {"q": [wait]},
            },
            {
                "step": 2,
                "activeBefore": {"q": [wait]},
                "inadmissibleAfter": {"q": [wait]},
                "pending": [told("wait", 1)],
            },
        ],
    }


def test_lines_in_lines_out_and_a_bad_line_is_an_error_of_its_own() -> None:
    late = json.dumps({"name": "late", "start": "soon", "objects": []})
    results = list(run_lines([json.dumps(SCENARIO), "", "{", "[]", '{"name": "no start"}', late]))
    assert [r["name"] for r in results] == ["small", "", "", "no start", "late"]
    assert "error" not in results[0]
    assert [(r["cycles"], r["error"].split(":")[0]) for r in results[1:]] == [
        ([], "invalid JSON"),
        ([], "the scenario's form is wrong"),
        ([], "the scenario lacks 'start'"),
        ([], "the scenario's form is wrong"),
    ]


def test_an_unknown_key_is_an_error_with_its_line() -> None:
    step = SCENARIO["steps"][0]
    lines = [
        json.dumps(SCENARIO),
        json.dumps({**SCENARIO, "objetcs": []}),
        json.dumps({**SCENARIO, "steps": [step, {**step, "creat": [], "maxCycle": 1}]}),
    ]
    assert [result.get("error", "") for result in run_lines(lines, "some.jsonl")] == [
        "",
        "some.jsonl:2: unknown key 'objetcs'; did you mean 'objects'?",
        "some.jsonl:3: steps[1]: unknown key 'creat'; did you mean 'create'?; "
        "some.jsonl:3: steps[1]: unknown key 'maxCycle'; did you mean 'maxCycles'?",
    ]


def test_the_documented_keys_of_the_conformance_data_and_of_scenarios_are_read() -> None:
    timed: dict[str, Any] = {"checks": [], "ready": [], "remove": [], "apply": [], "maxSeconds": 5, "expect": []}
    more: dict[str, Any] = {
        "admissionFairSharing": {"usageHalfLifeTime": "60s", "usageSamplingInterval": "30s", "resourceWeights": {}},
        "waitForPodsReady": {"timeout": "60s", "requeuingStrategy": {"backoffLimitCount": 1}},
        "fairSharingEnabled": False,
        "fairSharing": [],
        "featureGates": {},
        "seed": 1,
        "description": "",
        "prices": {},
        "engine": {},
        "arrivals": [],
        "wakeUpBatch": "0s",
    }
    scenario = {**SCENARIO, **more, "steps": [{**step, **timed} for step in SCENARIO["steps"]]}
    [plain, with_more] = run_lines([json.dumps(SCENARIO), json.dumps(scenario)])
    assert with_more == plain
