"""The drills come to what the issue says they come to, and what an `expect` block means."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from gpuconsole.insight.drill import ExpectationOutcome, ExpectationVerdict, run_drill
from gpuconsole.insight.expectations import CHECKS, FORMS
from gpuconsole.insight.index.gpu_map import gpu_rows
from gpuconsole.model.clock import HOUR, MINUTE, SECOND
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.manifests import load
from gpuconsole.model.objects import Object
from gpuconsole.model.queues import ClusterQueue, PreemptionPolicy, QueueingStrategy
from gpuconsole.scheduling.kai.config import DEFAULT_TIERS, KaiPolicy, SchedulerFlags, UsagePolicy
from gpuconsole.scheduling.kube.profile import PlacementPolicy
from gpuconsole.scheduling.kueue.config import AdmissionFairSharing, KueueConfig, PreemptionStrategy
from gpuconsole.scheduling.volcano.config import HELM_CONF, VolcanoPolicy
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import SimPolicy
from gpuconsole.sim.scenario import Scenario, build_simulation, load_scenario

FOLDER = Path(__file__).resolve().parents[2] / "fixtures" / "drills"
DRILLS = (
    "afs",
    "afs-without",
    "back-in-a-minute",
    "best-effort-fifo",
    "bin-pack",
    "binpack-volcano",
    "binpack-volcano-without",
    "burn-rate",
    "burst-cluster-autoscaler",
    "burst-karpenter",
    "clique",
    "consolidation-kai",
    "drf-volcano",
    "fgd",
    "final-share",
    "fractions-kai",
    "gang",
    "gang-without",
    "gpu-only",
    "guaranteed-quota",
    "inference-apart",
    "inference-apart-without",
    "inference-spares-research",
    "initial-share",
    "karpenter-consolidation",
    "kueue-volcano",
    "lenders-first",
    "lending-limit",
    "min-runtime-kai",
    "multikueue",
    "org-cohort",
    "past-use-kai",
    "past-use-kai-without",
    "policies-volcano",
    "proportion-volcano",
    "reclaim-kai",
    "reclaim-lower-priority",
    "reclaim-never",
    "reclaim-volcano",
    "scavenger",
    "seven-1g",
    "six-of-eight",
    "six-of-eight-without",
    "sla-volcano",
    "spot-fallback",
    "spot-reclaim",
    "spot-reclaim-without",
    "spread",
    "strict-fifo",
    "three-nodes",
    "three-nodes-never",
    "three-nodes-volcano",
    "three-nodes-volcano-by-score",
    "three-teams",
    "tiers",
    "tiers-development",
    "two-jobs",
    "two-jobs-without",
    "two-of-four",
    "two-of-four-without",
)


def drill(name: str) -> Scenario:
    path = FOLDER / f"{name}.yaml"
    loaded = load((path,))
    assert [str(finding) for finding in loaded.findings] == []
    return load_scenario(loaded.scenario, name, objects=loaded.objects, folder=path.parent)


def lived(name: str, span: int) -> tuple[Simulation, list[HistoryEvent]]:
    """The drill's cluster after some time, and its history."""
    simulation = build_simulation(drill(name))
    simulation.advance(simulation.now + span)
    return simulation, [event for event in simulation.drain() if isinstance(event, HistoryEvent)]


def complaints(results: Sequence[ExpectationOutcome]) -> list[str]:
    return [result.text for result in results if not result.ok]


def test_every_drill_is_listed_here() -> None:
    assert tuple(sorted(path.stem for path in FOLDER.glob("*.yaml"))) == DRILLS


@pytest.mark.parametrize("name", DRILLS)
def test_the_drill_passes(name: str) -> None:
    assert complaints(run_drill(drill(name))) == []


@pytest.mark.parametrize("name", DRILLS)
def test_the_drill_does_not_depend_on_the_seed(name: str) -> None:
    assert run_drill(drill(name), seed=99) == run_drill(drill(name))


def kai(**others: str) -> str:
    """KAI's default configuration with other plugins in place of some; an empty name is none."""
    names = [others.get(option.name, option.name) for tier in DEFAULT_TIERS for option in tier.plugins]
    return yaml.safe_dump({"tiers": [{"plugins": [{"name": name} for name in names if name]}]})


WRONG: dict[str, PlacementPolicy | VolcanoPolicy | KaiPolicy] = {
    "bin-pack": PlacementPolicy(score="spread"),
    "spread": PlacementPolicy(score="binpack"),
    "fgd": PlacementPolicy(score="binpack"),
    "gang": PlacementPolicy(gangs=False),
    "gang-without": PlacementPolicy(gangs=True),
    "two-of-four": PlacementPolicy(gangs=False),
    "six-of-eight": PlacementPolicy(gangs=False),
    "two-jobs": PlacementPolicy(gangs=False),
    "two-jobs-without": PlacementPolicy(gangs=True),
    "three-nodes": PlacementPolicy(preemption=False),
    "three-nodes-volcano": VolcanoPolicy(),
    "three-nodes-volcano-by-score": VolcanoPolicy(),
    "reclaim-volcano": VolcanoPolicy(),
    "sla-volcano": VolcanoPolicy(),
    "reclaim-kai": KaiPolicy(conf="actions: allocate"),
    "consolidation-kai": KaiPolicy(parameters=SchedulerFlags(max_consolidation_victims=0)),
    "min-runtime-kai": KaiPolicy(conf=kai(minruntime="")),
    "fractions-kai": KaiPolicy(conf=kai(gpupack="gpuspread", gpusharingorder="")),
    "past-use-kai": KaiPolicy(),
    "past-use-kai-without": KaiPolicy(usage=UsagePolicy()),
    "drf-volcano": VolcanoPolicy(conf=HELM_CONF.replace("drf", "sla")),
    "kueue-volcano": PlacementPolicy(gangs=False),
    "tiers": PlacementPolicy(preemption=False),
    "scavenger": PlacementPolicy(preemption=False),
}


@pytest.mark.parametrize("name", WRONG)
def test_the_drill_fails_under_another_policy(name: str) -> None:
    scenario = drill(name)
    assert complaints(run_drill(replace(scenario, policy=replace(scenario.policy, placement=WRONG[name]))))


def test_kai_gives_out_mig_slices_as_well() -> None:
    scenario = drill("seven-1g")
    assert complaints(run_drill(replace(scenario, policy=replace(scenario.policy, placement=KaiPolicy())))) == []


TURNS = AdmissionFairSharing(usage_half_life=HOUR)
OTHERWISE: dict[str, KueueConfig] = {
    "afs": KueueConfig(),
    "afs-without": KueueConfig(admission_fair_sharing=TURNS),
    "initial-share": KueueConfig(fair_sharing=True, strategies=(PreemptionStrategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE,)),
    "final-share": KueueConfig(fair_sharing=True, strategies=(PreemptionStrategy.LESS_THAN_INITIAL_SHARE,)),
}


@pytest.mark.parametrize("name", OTHERWISE)
def test_the_drill_fails_where_kueue_is_configured_otherwise(name: str) -> None:
    scenario = drill(name)
    assert complaints(run_drill(replace(scenario, policy=replace(scenario.policy, kueue=OTHERWISE[name]))))


@pytest.mark.parametrize(
    ("name", "strategy"),
    [("strict-fifo", QueueingStrategy.BEST_EFFORT_FIFO), ("best-effort-fifo", QueueingStrategy.STRICT_FIFO)],
)
def test_the_drill_fails_with_the_other_strategy(name: str, strategy: QueueingStrategy) -> None:
    scenario = drill(name)
    objects = tuple(
        replace(thing, queueing_strategy=strategy) if isinstance(thing, ClusterQueue) else thing
        for thing in scenario.objects
    )
    assert complaints(run_drill(replace(scenario, objects=objects)))


@pytest.mark.parametrize("name", ["org-cohort", "three-teams", "guaranteed-quota"])
def test_the_quota_drills_fail_without_queueing(name: str) -> None:
    scenario = drill(name)
    assert complaints(run_drill(replace(scenario, policy=replace(scenario.policy, kueue=None))))


@pytest.mark.parametrize(
    ("name", "busy_percent", "saved_percent"), [("bin-pack", [75], 67), ("spread", [25, 25, 25], 0)]
)
def test_packing_and_spreading_in_percent(name: str, busy_percent: list[int], saved_percent: int) -> None:
    rows = gpu_rows(lived(name, 0)[0].snapshot())
    used = [100 * sum(bool(cell.pod) for cell in row.cells) // len(row.cells) for row in rows]
    assert [percent for percent in used if percent] == busy_percent
    assert round(100 * used.count(0) / len(rows)) == saved_percent


def test_simulate_on_three_nodes_names_exactly_the_four_dev_pods_of_node_1() -> None:
    _, lines = lived("three-nodes", 24 * HOUR)
    evicted = [(line.workload, line.node) for line in lines if line.what is HistoryEventKind.EVICTED]
    assert sorted(evicted) == [(f"default/dev-{number}", "node-1") for number in range(4)]


def test_a_job_that_never_fits_is_told_the_maximum_capacity() -> None:
    _, lines = lived("three-teams", 25 * MINUTE)
    texts = {line.message for line in lines if line.what is HistoryEventKind.PENDING and "c-64" in line.workload}
    assert len(texts) == 1
    assert "current podset request (64) > maximum capacity (48)" in texts.pop()


def test_the_cpu_pod_is_told_in_kube_schedulers_words() -> None:
    simulation, _ = lived("gpu-only", 0)
    pods = simulation.snapshot().pods
    assert pods["default/cpu"].message == (
        "0/2 nodes are available: 2 node(s) had untolerated taint {nvidia.com/gpu: present}. "
        "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
    )
    assert pods["default/h100"].message == (
        "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector. "
        "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
    )


DEADLOCKS = {
    "gang-without": ("PyTorchJob/default/train holds 12 GPUs with 12 of 16 pods and waits for 4 more; 0 GPUs are free"),
    "two-of-four-without": (
        "PyTorchJob/default/train holds 2 GPUs with 2 of 4 pods and waits for 2 more; 0 GPUs are free"
    ),
    "six-of-eight-without": (
        "PyTorchJob/default/train holds 6 GPUs with 6 of 8 pods and waits for 2 more; 0 GPUs are free"
    ),
    "two-jobs-without": (
        "PyTorchJob/default/blue holds 4 GPUs with 4 of 6 pods and waits for 2 more; "
        "PyTorchJob/default/green holds 4 GPUs with 4 of 6 pods and waits for 2 more; 0 GPUs are free"
    ),
}


@pytest.mark.parametrize("name", DEADLOCKS)
def test_the_deadlock_is_detected_and_named(name: str) -> None:
    _, lines = lived(name, HOUR)
    assert [line.message for line in lines if line.what is HistoryEventKind.DEADLOCK][-1:] == [DEADLOCKS[name]]


@pytest.mark.parametrize("name", ["gang", "two-of-four", "six-of-eight", "two-jobs"])
def test_with_gangs_there_is_no_deadlock(name: str) -> None:
    assert [line for line in lived(name, 4 * HOUR)[1] if line.what is HistoryEventKind.DEADLOCK] == []


# What an expect block means, on one node of four GPUs without queueing.


def node(name: str) -> dict[str, Any]:
    allocatable = {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "4"}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"allocatable": allocatable}}


def pod(name: str, gpus: int = 1, priority: int = 0, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "x", "resources": {"limits": {"nvidia.com/gpu": gpus}}}
    whole = {"priority": priority, "containers": [container], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": whole}


def scenario(*steps: Mapping[str, Any], **fields: Any) -> Scenario:
    document = {"name": "small", "engine": {"admission": "none"}, "objects": [node("n")], "steps": steps, **fields}
    return load_scenario([document])


def outcome(expect: Mapping[str, Any]) -> ExpectationOutcome:
    """What one expectation comes to after `low` was evicted for `high`, while `wide` waits."""
    steps: list[dict[str, Any]] = [
        {"create": [pod("low", 3), pod("stays", 1, priority=9)]},
        {"advanceSeconds": 3600, "create": [pod("high", 2, priority=5), pod("wide", 8)], "expect": [expect]},
    ]
    (result,) = run_drill(scenario(*steps))
    return result


def passed(key: str, got: str, at: int = HOUR, wanted: str | None = None) -> ExpectationOutcome:
    return ExpectationOutcome(
        step=2, at=at, key=key, verdict=ExpectationVerdict.PASSED, wanted=got if wanted is None else wanted, got=got
    )


def failed(key: str, wanted: str, got: str, at: int = HOUR) -> ExpectationOutcome:
    return ExpectationOutcome(step=2, at=at, key=key, verdict=ExpectationVerdict.FAILED, wanted=wanted, got=got)


EVICTED = "default/low by default/high (Preempted)"
WAITING = "default/high: nodes, default/wide: nodes"
MEANINGS: dict[str, tuple[dict[str, Any], ExpectationOutcome]] = {
    "admitted names all that have their place": (
        {"admitted": ["default/stays"]},
        passed("admitted", "default/stays"),
    ),
    "admitted is exact": (
        {"admitted": ["default/stays", "default/high"]},
        failed("admitted", "default/high, default/stays", "default/stays (default/high pending: nodes)"),
    ),
    "an empty list is an expectation": (
        {"admitted": []},
        failed("admitted", "nothing", "default/stays"),
    ),
    "admittedIncludes is what it says": (
        {"admittedIncludes": ["default/stays"]},
        passed("admittedIncludes", "default/stays"),
    ),
    "admittedIncludes misses what is not there": (
        {"admittedIncludes": ["default/low"]},
        failed("admittedIncludes", "default/low", "default/stays"),
    ),
    "pending names all that wait, and why": (
        {"pending": {"default/high": "nodes", "default/wide": "nodes"}},
        passed("pending", WAITING),
    ),
    "pending is exact": (
        {"pending": {"default/high": "nodes"}},
        failed("pending", "default/high: nodes", WAITING),
    ),
    "pendingIncludes is not": (
        {"pendingIncludes": {"default/wide": "nodes"}},
        passed("pendingIncludes", WAITING, wanted="default/wide: nodes"),
    ),
    "another reason is another answer": (
        {"pendingIncludes": {"default/wide": "quota"}},
        failed("pendingIncludes", "default/wide: quota", WAITING),
    ),
    "evicted says who, by whom and why": (
        {"evicted": [{"workload": "default/low", "by": "default/high", "reason": "Preempted"}]},
        passed("evicted", EVICTED),
    ),
    "what an eviction leaves out may be anything": (
        {"evicted": [{"workload": "default/low"}]},
        passed("evicted", EVICTED, wanted="default/low"),
    ),
    "another preemptor is another eviction": (
        {"evicted": [{"workload": "default/low", "by": "default/wide"}]},
        failed("evicted", "default/low by default/wide", EVICTED),
    ),
    "another reason is another eviction": (
        {"evicted": [{"workload": "default/low", "reason": "Drained"}]},
        failed("evicted", "default/low (Drained)", EVICTED),
    ),
    "evicted is exact": ({"evicted": []}, failed("evicted", "nothing", EVICTED)),
    "the same eviction does not count twice": (
        {"evictedIncludes": [{"workload": "default/low"}, {"workload": "default/low"}]},
        failed("evictedIncludes", "default/low, default/low", EVICTED),
    ),
    "evictedIncludes is what it says": (
        {"evictedIncludes": [{"workload": "default/low"}]},
        passed("evictedIncludes", EVICTED, wanted="default/low"),
    ),
    "noEvictions is broken by any": ({"noEvictions": True}, failed("noEvictions", "no evictions", EVICTED)),
    "nodes name the pods that hold a place, leaving ones too": (
        {"nodes": {"n": ["low", "default/stays"]}},
        passed("nodes", "n: default/low, default/stays"),
    ),
    "nodes are exact": (
        {"nodes": {"n": ["low"]}},
        failed("nodes", "n: default/low", "n: default/low, default/stays"),
    ),
    "nodesIncludes is not": (
        {"nodesIncludes": {"n": ["low"]}},
        passed("nodesIncludes", "n: default/low, default/stays", wanted="n: default/low"),
    ),
    "freeNodes counts nodes without pods": ({"freeNodes": 1}, failed("freeNodes", "1", "0")),
    "lostGpuHours is what has to be done again": ({"lostGpuHours": 3}, passed("lostGpuHours", "3")),
    "a whole number is compared to two decimals": ({"cost": 7}, failed("cost", "7", "6")),
    "cost is in USD, at 2.00 where the type is unknown": ({"cost": 6.0}, passed("cost", "6")),
    "within waits until it comes true": (
        {"nodes": {"n": ["high", "stays"]}, "within": "60s"},
        passed("nodes", "n: default/high, default/stays", at=HOUR + 30 * SECOND),
    ),
    "within is not for ever": (
        {"nodes": {"n": ["high", "stays"]}, "within": "29s"},
        failed("nodes", "n: default/high, default/stays", "n: default/low, default/stays", at=HOUR + 29 * SECOND),
    ),
}


@pytest.mark.parametrize("name", MEANINGS)
def test_an_expectation(name: str) -> None:
    expect, wanted = MEANINGS[name]
    assert outcome(expect) == wanted


KEYS = (
    "admitted, pending, evicted, usage, borrowed, lent, share, nodes, freeNodes, lostGpuHours, cost, pools, "
    "noEvictions, admittedIncludes, pendingIncludes, evictedIncludes, nodesIncludes"
)
PROBLEMS: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown key": ({"admited": []}, "'admited' is not a key of expect; did you mean 'admitted'?"),
    "a list that includes nothing": (
        {"admittedIncludes": []},
        "admittedIncludes: it is empty and would always hold; name at least one object",
    ),
    "nodes without a node": (
        {"nodes": {}},
        "nodes: it is empty and would always hold; name at least one object",
    ),
    "a key that has no Includes": (
        {"usageIncludes": {}},
        f"'usageIncludes' is not a key of expect; use one of {KEYS} and within",
    ),
    "no key at all": ({}, f"it is empty; add one of {KEYS}"),
    "only a deadline": ({"within": "60s"}, f"it is empty; add one of {KEYS}"),
    "a deadline that is none": (
        {"freeNodes": 0, "within": "soon"},
        "within: 'soon' is not a duration; write it as 90s, 30m, 1h30m or 2d",
    ),
    "a workload that does not exist": (
        {"admitted": ["default/nobody"]},
        "admitted: no workload, job or pod 'default/nobody' exists; use namespace/name",
    ),
    "a workload without a namespace": (
        {"pending": {"wide": "nodes"}},
        "pending: no workload, job or pod 'wide' exists; use namespace/name",
    ),
    "a preemptor that does not exist": (
        {"evicted": [{"workload": "default/low", "by": "default/nobody"}]},
        "evicted: no workload, job or pod 'default/nobody' exists; use namespace/name",
    ),
    "an eviction of nobody": (
        {"evicted": [{"by": "default/high"}]},
        "evicted: an eviction needs workload and takes by, reason; got {'by': 'default/high'}",
    ),
    "an eviction with a wrong key": (
        {"evicted": [{"workload": "default/low", "why": "x"}]},
        "evicted: an eviction needs workload and takes by, reason; got {'workload': 'default/low', 'why': 'x'}",
    ),
    "a node that does not exist": ({"nodes": {"m": []}}, "nodes: no node 'm' exists; there are n"),
    "a pod that does not exist": ({"nodes": {"n": ["nobody"]}}, "nodes: no pod 'nobody' exists"),
    "a pool that does not exist": ({"pools": {"p": {"nodes": 1}}}, "pools: no pool 'p' exists; there are none"),
    "pools of which nothing is said": ({"pools": {"p": {}}}, "pools: no field is given"),
    "a queue that does not exist": ({"share": {"cq": 50}}, "share: no queue 'cq' exists; there are none"),
    "a list that is none": (
        {"admitted": "default/low"},
        "admitted: 'default/low' is not a list; write admitted: [ml/train]",
    ),
    "a mapping that is none": (
        {"nodes": ["n"]},
        "nodes: ['n'] is not a mapping of names; write nodes: {node-1: [train-0]}",
    ),
    "a number that is none": ({"freeNodes": "one"}, "freeNodes: 'one' is not a number; write freeNodes: 2"),
    "evictions are named by evicted": ({"noEvictions": False}, "noEvictions takes only true"),
    "evictions are not counted by noEvictions": ({"noEvictions": 1}, "noEvictions takes only true"),
}


def test_every_key_says_how_it_is_written() -> None:
    """The examples are what the page of scenarios shows; `noEvictions` says itself what it takes."""
    assert {*FORMS} == {*CHECKS}


@pytest.mark.parametrize("name", PROBLEMS)
def test_what_cannot_be_checked_is_no_pass(name: str) -> None:
    expect, problem = PROBLEMS[name]
    result = outcome(expect)
    assert (result.verdict, result.ok) == (ExpectationVerdict.PROBLEM, False)
    assert problem in result.got


def test_an_unknown_reason_names_those_that_exist() -> None:
    assert (
        "'hunger' is not a reason code; use one of not-waiting, exceeds-max, quota"
        in outcome({"pending": {"default/wide": "hunger"}}).got
    )


def test_a_drill_that_expects_nothing_does_not_pass() -> None:
    outcome = run_drill(scenario({"create": [pod("p")]}))
    assert complaints(outcome) == ["step 0 at 0s: no step has an expectation; a drill without expectations fails"]


def test_one_failure_fails_the_drill_and_the_rest_is_still_checked() -> None:
    expect = [{"admitted": ["default/p"], "freeNodes": 1}, {"oops": 1}, {"noEvictions": True}]
    outcome = run_drill(scenario({"create": [pod("p")], "expect": expect}))
    assert [result.text for result in outcome] == [
        "step 1 at 0s: admitted: default/p",
        "step 1 at 0s: freeNodes: expected 1; got 0",
        f"step 1 at 0s: expect[1]: 'oops' is not a key of expect; use one of {KEYS} and within",
        "step 1 at 0s: noEvictions: nothing",
    ]


def test_a_step_that_could_not_be_carried_out_is_no_pass() -> None:
    steps: list[dict[str, Any]] = [
        {"finish": ["default/nobody"], "commands": [{"type": "drain", "node": "m"}], "expect": [{"noEvictions": True}]},
        {"expect": [{"noEvictions": True}]},
    ]
    assert [(result.step, result.key, result.ok) for result in run_drill(scenario(*steps))] == [
        (1, "command", False),
        (1, "command", False),
        (1, "noEvictions", True),
        (2, "noEvictions", True),
    ]


def test_what_is_finished_may_be_finished_again() -> None:
    again = {"finish": ["default/p"], "expect": [{"noEvictions": True}]}
    assert complaints(run_drill(scenario({"create": [pod("p")]}, again, again))) == []


def test_what_happened_counts_from_the_check_before() -> None:
    steps: list[dict[str, Any]] = [
        {"create": [pod("low", 4)]},
        {
            "advanceSeconds": 60,
            "create": [pod("high", 4, priority=5)],
            "expect": [{"within": "60s", "nodes": {"n": ["high"]}}, {"evicted": [{"workload": "default/low"}]}],
        },
        {"advanceSeconds": 60, "expect": [{"noEvictions": True, "lostGpuHours": 0, "cost": 0}]},
    ]
    assert complaints(run_drill(scenario(*steps))) == []


def test_an_eviction_between_two_steps_belongs_to_the_later_one() -> None:
    steps: list[dict[str, Any]] = [
        {"create": [pod("p")], "expect": [{"noEvictions": True}]},
        {"advanceSeconds": 60, "commands": [{"type": "drain", "node": "n"}]},
        {"advanceSeconds": 60, "expect": [{"evicted": [{"workload": "default/p", "reason": "Drained"}]}]},
    ]
    assert complaints(run_drill(scenario(*steps))) == []


def test_that_nothing_is_evicted_has_to_hold_to_the_end_of_the_time() -> None:
    later = {"advanceSeconds": 60, "create": [pod("high", 4, priority=5)]}
    first = {"create": [pod("low", 4)], "expect": [{"noEvictions": True, "within": "2m"}]}
    outcome = run_drill(scenario(first, later))
    assert complaints(outcome) == [
        "step 1 at 2m: noEvictions: expected no evictions; got default/low by default/high (Preempted)"
    ]


def test_looking_ahead_does_not_move_the_clock() -> None:
    first = {"create": [pod("low", 4)], "expect": [{"freeNodes": 1, "within": "1h"}]}
    second = {"advanceSeconds": 60, "expect": [{"admitted": ["default/low"]}]}
    assert [result.at for result in run_drill(scenario(first, second))] == [HOUR, MINUTE]


def test_steps_of_one_moment_are_checked_one_after_the_other() -> None:
    first = {"create": [pod("a", 4)], "expect": [{"admitted": ["default/a"]}]}
    second = {"finish": ["default/a"], "create": [pod("b", 4)], "expect": [{"admitted": ["default/b"]}]}
    assert complaints(run_drill(scenario(first, second))) == []


def test_a_deleted_pod_was_not_evicted() -> None:
    gone = {"delete": ["default/p"], "expect": [{"noEvictions": True}]}
    assert complaints(run_drill(scenario({"create": [pod("p")]}, gone))) == []


def test_a_name_may_appear_before_the_deadline() -> None:
    first = {"expect": [{"admitted": ["default/p"], "within": "2m"}]}
    assert complaints(run_drill(scenario(first, {"advanceSeconds": 60, "create": [pod("p")]}))) == []


# What is said about queues.

QUEUES: list[dict[str, Any]] = [
    {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "a100"}},
    *(
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "ClusterQueue",
            "metadata": {"name": name},
            "spec": {
                "cohortName": "all",
                "namespaceSelector": {},
                "resourceGroups": [
                    {
                        "coveredResources": ["cpu", "nvidia.com/gpu"],
                        "flavors": [
                            {
                                "name": "a100",
                                "resources": [
                                    {"name": "cpu", "nominalQuota": 8},
                                    {"name": "nvidia.com/gpu", "nominalQuota": 4},
                                ],
                            }
                        ],
                    }
                ],
            },
        }
        for name in ("mine", "yours")
    ),
    {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "LocalQueue",
        "metadata": {"name": "main", "namespace": "team"},
        "spec": {"clusterQueue": "mine"},
    },
]


def job(name: str, gpus: int) -> dict[str, Any]:
    resources = {"requests": {"cpu": "500m", "nvidia.com/gpu": gpus}, "limits": {"nvidia.com/gpu": gpus}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "team", "labels": {"kueue.x-k8s.io/queue-name": "main"}},
        "spec": {
            "template": {
                "spec": {"restartPolicy": "Never", "containers": [{"name": "m", "image": "x", "resources": resources}]}
            }
        },
    }


def queued(expect: Mapping[str, Any]) -> list[str]:
    steps: list[dict[str, Any]] = [
        {"create": [job("runs", 6)]},
        {"advanceSeconds": 1, "create": [job("waits", 4)], "expect": [expect]},
    ]
    return [result.text for result in run_drill(scenario(*steps, engine={}, objects=QUEUES))]


SAID: dict[str, tuple[dict[str, Any], str]] = {
    "a Workload goes by the name of its job": ({"admitted": ["team/runs"]}, "admitted: team/runs"),
    "and a job that waits too": ({"pending": {"team/waits": "quota"}}, "pending: team/waits: quota"),
    "its kind may stand before it": ({"admitted": ["Job/team/runs"]}, "admitted: team/runs"),
    "usage reads quantities": (
        {"usage": {"mine": {"a100": {"cpu": "500m", "nvidia.com/gpu": 6}}}},
        "usage: mine a100 cpu 500m, mine a100 nvidia.com/gpu 6",
    ),
    "usage that is different": (
        {"usage": {"mine": {"a100": {"nvidia.com/gpu": 5}}}},
        "usage: expected mine a100 nvidia.com/gpu 5; got mine a100 nvidia.com/gpu 6",
    ),
    "a cohort has usage too": ({"usage": {"all": {"a100": {"nvidia.com/gpu": 6}}}}, "usage: all a100 nvidia.com/gpu 6"),
    "a flavor that the queue does not have": (
        {"usage": {"mine": {"h100": {"nvidia.com/gpu": 6}}}},
        "expect[0]: usage: queue mine has no quota of nvidia.com/gpu in h100",
    ),
    "a quantity that is none": (
        {"usage": {"mine": {"a100": {"cpu": "lots"}}}},
        "expect[0]: usage: 'lots' is not a quantity; write it as 8, 500m, 1.5Gi or 2e3",
    ),
    "borrowed GPUs": ({"borrowed": {"mine": 2, "yours": 0}}, "borrowed: mine 2, yours 0"),
    "lent GPUs": ({"lent": {"mine": 0, "yours": 2}}, "lent: mine 0, yours 2"),
    "a share is what is used of what could be": ({"share": {"mine": 75, "yours": 0}}, "share: mine 75, yours 0"),
    "a share that is different": ({"share": {"mine": 74}}, "share: expected mine 74; got mine 75"),
}


@pytest.mark.parametrize("name", SAID)
def test_about_queues(name: str) -> None:
    expect, text = SAID[name]
    assert queued(expect) == [f"step 2 at 1s: {text}"]


def test_a_victim_of_kueue_may_be_named_by_rule_or_by_condition() -> None:
    scenario = drill("org-cohort")
    for reason in ("InCohortReclamation", "Preempted"):
        expect = {"evicted": [{"workload": "research/rlhf", "reason": reason}]}
        steps = tuple(
            replace(step, expect=(expect,) if number == 3 else ()) for number, step in enumerate(scenario.steps)
        )
        assert complaints(run_drill(replace(scenario, steps=steps))) == []


def test_without_queueing_is_the_policy_of_these_tests() -> None:
    assert scenario().policy == SimPolicy(kueue=None)


def test_a_pool_is_checked_by_what_is_said_of_it() -> None:
    scenario = drill("burst-karpenter")
    for facts, text in (
        ({"nodes": 1, "hourly": 2.97}, "pools: gpu-nodepool nodes 1, gpu-nodepool hourly 2.97"),
        (
            {"nodes": 2, "spot": 1},
            "pools: expected gpu-nodepool nodes 2, gpu-nodepool spot 1; got gpu-nodepool nodes 1, gpu-nodepool spot 1",
        ),
        (
            {"colour": 1},
            "expect[0]: pools: 'colour' is not a field of a pool; use one of nodes, starting, leaving, spot, launched,",
        ),
        ({}, "expect[0]: pools: no field is given; write pool: {nodes: 1}"),
    ):
        steps = tuple(
            replace(step, expect=({"pools": {"gpu-nodepool": facts}},) if number == 2 else ())
            for number, step in enumerate(scenario.steps)
        )
        (result,) = run_drill(replace(scenario, steps=steps))
        assert result.text.startswith(f"step 3 at 46s: {text}")


@pytest.mark.parametrize("queue", ["inference", "team-b"])
def test_a_pull_request_that_lets_borrowers_block_a_lender_fails_the_drill(queue: str) -> None:
    loaded = load([FOLDER / "lenders-first.yaml"])
    drill = load_scenario(loaded.scenario, folder=FOLDER)
    changed = replace(drill, objects=tuple(_without_reclaim(thing, queue) for thing in drill.objects))

    assert complaints(run_drill(drill)) == []
    assert complaints(run_drill(changed))


def _without_reclaim(thing: Object, queue: str) -> Object:
    if not isinstance(thing, ClusterQueue) or thing.name != queue:
        return thing
    return replace(thing, preemption=replace(thing.preemption, reclaim_within_cohort=PreemptionPolicy.NEVER))
