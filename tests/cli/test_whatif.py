"""`gpuconsole whatif`: changes from a file, on drills whose numbers are known."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuconsole.insight.data_gaps import latency_assumption
from gpuconsole.sim.run_times import DEFAULT_LATENCIES
from gpuconsole.ui.names import called
from tests.support.command_line import Line

SERVE = """
apiVersion: batch/v1
kind: Job
metadata:
  name: serve-extra
  namespace: prod
  labels: {kueue.x-k8s.io/queue-name: lq-prod}
  annotations: {gpuconsole.io/duration: 24h}
spec:
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: example.com/work:1, resources: {limits: {nvidia.com/gpu: "8"}}}]
"""


@pytest.fixture
def change(tmp_path: Path) -> Path:
    file = tmp_path / "serve.yaml"
    file.write_text(SERVE)
    return file


def body(out: str) -> dict[str, Any]:
    answer = json.loads(out)
    assert isinstance(answer, dict)
    return answer


def test_who_gets_in_and_who_pays_for_it(gpuconsole: Line, change: Path) -> None:
    """After 50 minutes, rlhf borrows four GPUs that production asks for now."""
    result = gpuconsole("whatif", "org-cohort", "--until", "50m", "-f", change, "--horizon", "10m")

    assert (result.status, result.err.splitlines()) == (
        0,
        [
            f"gpuconsole: {latency_assumption(DEFAULT_LATENCIES)}",
            "gpuconsole: simulated org-cohort as of 2026-01-05T08:50:00Z",
        ],
    )
    assert result.lines == [
        "prod/serve-extra starts in 30s; preempts research/rlhf (6 GPUs, loses 3.0 GPU-hours, does not restart before "
        "the horizon).",
        "At 2026-01-05T08:50:00Z, to +10m; feasible, nothing is reserved",
        "prod/serve-extra, 8 GPUs: admitted at +1s from a100 on a100-3",
        "",
        *result.lines[4:],
    ]
    victim, numbers = result.lines[5].split("  "), result.lines[7:]
    assert [cell.strip() for cell in victim if cell] == [
        *("research/rlhf", "cq-research", "6", "1", "+0s", "+1s", "+30s"),
        *("prod/serve-extra", "reclaim in cohort", "3.0", "$6.63", "–"),
    ]
    assert numbers[0].split() == ["QUEUES", "AND", "GPUS", "AT", "+30s", "NOW", "BASELINE", "CHANGED"]
    assert [line.split("  ")[0] for line in numbers[1:]][:5] == [
        "cq-prod, GPUs",
        "cq-prod, % of max quota",
        "cq-research, GPUs",
        "cq-research, borrowed",
        "cq-research, % of max quota",
    ]


@pytest.mark.usefixtures("measured_latencies")
def test_what_depends_on_the_latencies_of_controllers_is_a_range(gpuconsole: Line, tmp_path: Path) -> None:
    file = tmp_path / "llm.yaml"
    file.write_text(SERVE.replace("namespace: prod", "namespace: llm").replace("lq-prod", "main, PRIORITY"))
    file.write_text(file.read_text().replace("PRIORITY", "kueue.x-k8s.io/priority-class: production"))
    asked = ("whatif", "--until", "17s", "--horizon", "2m", "-f", file)

    lines = gpuconsole(*asked).lines
    assert re.match(
        r"llm/serve-extra starts in 30s \(\d+s to \d+s in 5 runs\); preempts llm/pretrain-3 \(24 GPUs", lines[0]
    )
    assert lines[1].endswith("; 5 runs with different controller latencies")
    assert re.match(
        r"llm/serve-extra, 8 GPUs: admitted at \+1\.\ds \([\d.]+s to [\d.]+s in 5 runs\) from h100 on h100-07, "
        r"starts at \+30s \(\d+s to \d+s in 5 runs\)$",
        lines[2],
    )
    document = body(gpuconsole(*asked, "-o", "json").out)
    (outcome,) = document["answer"]["outcomes"]
    assert (document["version"], document["answer"]["runs"]) == (6, 5)
    assert outcome["admitted_range"]["earliest"] < outcome["admitted"] < outcome["admitted_range"]["latest"]


def test_of_many_jobs_people_are_told_the_first_and_programs_all(gpuconsole: Line, tmp_path: Path) -> None:
    many = tmp_path / "many.yaml"
    many.write_text("---".join(SERVE.replace("serve-extra", f"many-{number:03}") for number in range(120)))
    asked = ("whatif", "org-cohort", "--until", "50m", "-f", many, "--horizon", "10m")

    lines = gpuconsole(*asked).lines
    assert [line.split(":")[0] for line in lines[2:52]] == [f"prod/many-{number:03}, 8 GPUs" for number in range(50)]
    assert lines[52] == "… and 70 more, 70 of them not admitted before the horizon (-o json has all)"
    assert sum("many-" in line for line in lines[1:]) == 51, "and one victim of the first"
    assert len(body(gpuconsole(*asked, "-o", "json").out)["answer"]["outcomes"]) == 120


def test_the_same_as_a_document(gpuconsole: Line, change: Path) -> None:
    result = gpuconsole("whatif", "org-cohort", "--until", "50m", "-f", change, "--horizon", "10m", "-o", "json")
    document = body(result.out)
    answer = document["answer"]

    assert {name: document[name] for name in ("kind", "version", "source", "mode", "time")} == {
        "kind": "WhatIf",
        "version": 6,
        "source": "org-cohort",
        "mode": "simulated",
        "time": "2026-01-05T08:50:00Z",
    }
    assert (answer["time"], answer["compared"], answer["horizon"], answer["empty"]) == (
        "2026-01-05T08:50:00Z",
        "2026-01-05T08:50:30Z",
        "2026-01-05T09:00:00Z",
        False,
    )
    assert [(one["admitted"], one["new"], one["flavors"]) for one in answer["outcomes"]] == [
        ("2026-01-05T08:50:01Z", True, ["a100"])
    ]
    assert [(one["queue"], one["gpus"], one["returns"]) for one in answer["victims"]] == [("cq-research", 6, None)]
    assert (answer["median_wait_seconds"], answer["median_wait_without_seconds"]) == (1.0, None)


def test_the_victim_of_a_rehearsed_job_stands_apart_from_what_follows_from_it(gpuconsole: Line, tmp_path: Path) -> None:
    """A production job in llm preempts one workload; half an hour later another one is evicted once a second."""
    file = tmp_path / "llm.yaml"
    file.write_text(
        SERVE.replace("namespace: prod", "namespace: llm").replace(
            "lq-prod}", "main, kueue.x-k8s.io/priority-class: production}"
        )
    )
    asked = ("whatif", "--until", "17s", "-f", file)
    lines = gpuconsole(*asked).lines
    document = body(gpuconsole(*asked, "-o", "json").out)
    answer = document["answer"]
    knock_on = {one["workload"].partition("/")[2]: one["evictions"] for one in answer["knock_on"]}

    assert re.fullmatch(
        r"llm/serve-extra starts in 30s; preempts llm/pretrain-3 \(24 GPUs, loses 0\.1 GPU-hours, restarts in about "
        rf"[\dms]+\); {sum(knock_on.values())} knock-on evictions of {len(knock_on)} workloads; avoids .*\.",
        lines[0],
    )
    assert (document["version"], answer["verdict"]) == (6, lines[0])
    assert [(called(one["workload"]), list(map(called, one["by"])), one["evictions"]) for one in answer["victims"]] == [
        ("llm/pretrain-3", ["llm/serve-extra"], 1)
    ]
    assert len(knock_on) == len(answer["knock_on"]), "one entry per workload"
    assert max(knock_on.values()) > 1
    assert not [one for one in answer["victims"] + answer["knock_on"] if "serve-extra" in one["workload"]]
    titles = [line.split("  ")[0] for line in lines if line.split("  ")[0].isupper()]
    assert titles[:3] == ["DIRECT VICTIMS", "KNOCK-ON EVICTIONS", "AVOIDED EVICTIONS"]
    assert sum("knock" not in line and "vision/detect-13" in line for line in lines) <= 3


def test_what_is_wrong_with_a_change_stands_with_its_line_and_what_would_be_right(
    gpuconsole: Line, tmp_path: Path
) -> None:
    file = tmp_path / "change.yaml"
    file.write_text(
        "horizon: soon\n"
        "steps:\n"
        "  - commands:\n"
        "      - {type: finish, workload: a/b}\n"
        "      - type: set-priority\n"
        "        workload: a/b\n"
        "        prio: 5\n"
        "  - advanceSeconds: 60\n"
    )
    result = gpuconsole("whatif", "org-cohort", "-f", file)
    assert result.status == 1
    assert [line.partition("change.yaml:")[2] for line in result.err.splitlines()] == [
        "1: error: horizon: 'soon' is not a duration; write it as 90s, 30m, 1h30m or 2d",
        "5: error: steps[0].commands[1]: priority is missing; write it",
        "7: error: steps[0].commands[1]: unknown key 'prio'; did you mean 'priority'?",
    ]


def test_two_files_against_each_other(gpuconsole: Line, change: Path) -> None:
    result = gpuconsole("whatif", "org-cohort", "--until", "50m", "-f", change, "--against", change, "--horizon", "10m")

    assert result.status == 0
    assert [line.partition(":")[0] for line in result.lines] == [
        "These changes make no difference before the horizon.",
        "At 2026-01-05T08",
        "prod/serve-extra, 8 GPUs",
        "with serve.yaml",
    ]


def test_a_change_that_cannot_be_carried_out_is_named(gpuconsole: Line, tmp_path: Path) -> None:
    file = tmp_path / "change.yaml"
    later = "{advanceSeconds: 60, commands: [{type: set-weight, queue: cq-prod, weight: -1}]}"
    file.write_text(f"steps: [{{commands: [{{type: fail-node, node: n9}}]}}, {later}]")
    result = gpuconsole("whatif", "org-cohort", "-f", file)

    assert (result.status, result.lines) == (
        1,
        [
            "No difference: no change can be applied.",
            "At 2026-01-05T08:00:00Z, to +1h; no change can be applied",
            "refused: steps[0].commands[0] (fail-node n9): there is no node n9",
            "refused: steps[1].commands[0] (set-weight cq-prod): weight -1 is not 0 or more",
        ],
    )


def test_a_file_that_is_no_change_says_why(gpuconsole: Line, tmp_path: Path) -> None:
    file = tmp_path / "change.yaml"
    file.write_text("steps: [{commands: [{type: set-weight, weight: 2}]}]")
    result = gpuconsole("whatif", "org-cohort", "-f", file)

    assert (result.status, result.err) == (
        1,
        f"gpuconsole: {file}:1: error: steps[0].commands[0]: queue is missing; write it\n",
    )


def test_the_horizon_of_the_file_holds_unless_another_one_is_asked_for(gpuconsole: Line, tmp_path: Path) -> None:
    file = tmp_path / "change.yaml"
    file.write_text("horizon: 5m\nsteps: [{delete: [LocalQueue/prod/lq-prod]}]")

    assert "to +5m" in gpuconsole("whatif", "org-cohort", "-f", file).lines[1]
    assert "to +3m" in gpuconsole("whatif", "org-cohort", "-f", file, "--horizon", "3m").lines[1]


def test_changes_that_ask_for_what_is_so_already_make_no_difference_and_say_what_is_so(
    gpuconsole: Line, tmp_path: Path
) -> None:
    file = tmp_path / "change.yaml"
    quota = "{type: set-quota, clusterQueue: cq-prod, flavor: a100, resource: nvidia.com/gpu, nominal: 16}"
    file.write_text(f"steps: [{{commands: [{quota}, {{type: set-active, workload: prod/serve, active: true}}]}}]")
    asked = ("whatif", "org-cohort", "--until", "50m", "--horizon", "10m", "-f", file)
    result = gpuconsole(*asked)

    so_already = [
        "steps[0].commands[0] (set-quota cq-prod): "
        "ClusterQueue cq-prod has this quota of nvidia.com/gpu in a100 already",
        "steps[0].commands[1] (set-active prod/serve): workload prod/job-serve-73e13 is active already",
    ]
    assert (result.status, result.lines) == (
        0,
        [
            "These changes make no difference before the horizon.",
            "At 2026-01-05T08:50:00Z, to +10m; feasible, nothing is reserved",
            *(f"no change (already so): {text}".replace("job-serve-73e13", "serve") for text in so_already),
            "prod/serve, 8 GPUs: already admitted since 2026-01-05T08:10:00Z",
        ],
    )
    answer = body(gpuconsole(*asked, "-o", "json").out)["answer"]
    assert (answer["empty"], answer["refused"], answer["so_already"]) == (True, [], so_already)


def test_cohorts_in_a_circle_are_said_to_stop_admission(gpuconsole: Line, tmp_path: Path) -> None:
    file = tmp_path / "change.yaml"
    kind = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: Cohort"
    cohorts = (f"{kind}\nmetadata: {{name: {name}}}\nspec: {{}}" for name in "ab")
    moves = (f"{{type: set-cohort, queue: {name}, cohort: {to}, kind: Cohort}}" for name, to in ("ab", "ba"))
    leave = "{type: set-cohort, queue: cq-prod, cohort: a}"
    file.write_text("\n---\n".join((*cohorts, f"steps: [{{commands: [{', '.join(moves)}, {leave}]}}]")))
    asked = ("whatif", "org-cohort", "--until", "50m", "--horizon", "10m", "-f", file)

    why = "cohort a is its own ancestor, or below one that is: nothing in it is admitted"
    assert gpuconsole(*asked).lines[2] == f"admits no workloads: cq-prod: {why}"
    answer = body(gpuconsole(*asked, "-o", "json").out)["answer"]
    assert (answer["empty"], answer["closed"]) == (False, [{"queue": "cq-prod", "why": why}])


def test_one_more_of_what_runs_needs_no_manifest(gpuconsole: Line, tmp_path: Path) -> None:
    file = tmp_path / "change.yaml"
    file.write_text("steps: [{commands: [{type: copy, of: prod/serve, name: serve-2}]}]")

    lines = gpuconsole("whatif", "org-cohort", "--until", "50m", "--horizon", "1m", "-f", file).lines
    assert lines[2] == "prod/serve-2, 8 GPUs: admitted at +1s from a100 on a100-3"


def test_a_change_beyond_the_horizon_is_named_and_not_called_without_effect(gpuconsole: Line, tmp_path: Path) -> None:
    file = tmp_path / "change.yaml"
    file.write_text("steps: [{advanceSeconds: 7200, delete: [prod/serve]}]")
    result = gpuconsole("whatif", "org-cohort", "--until", "50m", "--horizon", "30m", "-f", file)
    assert (result.status, result.lines) == (
        1,
        [
            "No difference: no change can be applied.",
            "At 2026-01-05T08:50:00Z, to +30m; no change can be applied",
            "refused: steps[0].delete[0]: it lies beyond the horizon, +30m: set a longer horizon",
        ],
    )


def test_who_is_admitted_and_finds_no_nodes_is_said_not_to_run(gpuconsole: Line, tmp_path: Path) -> None:
    file = tmp_path / "change.yaml"
    file.write_text(
        "steps: [{commands: ["
        "{type: set-quota, clusterQueue: cq-prod, flavor: a100, resource: nvidia.com/gpu, nominal: 99},"
        "{type: copy, of: prod/serve, name: two}, {type: copy, of: prod/serve, name: three}]}]"
    )
    lines = gpuconsole("whatif", "org-cohort", "--until", "50m", "--horizon", "5m", "-f", file).lines
    assert [line.rpartition("; ")[2] for line in lines if ": admitted at" in line] == [
        "1 of 1 pods unschedulable: 3 Insufficient nvidia.com/gpu"
    ] * 2


@pytest.fixture
def ended(tmp_path: Path) -> Callable[[str], Path]:
    """A change that lets something end, seen five minutes on."""

    def write(key: str) -> Path:
        file = tmp_path / "end.yaml"
        file.write_text(f"horizon: 5m\nsteps:\n- finish: [{key}]\n")
        return file

    return write


def test_a_pod_that_nothing_queues_gets_in_when_another_ends(gpuconsole: Line, ended: Callable[[str], Path]) -> None:
    """Four GPUs, seven pods that hold parts of them, and notebook-4 that waits for the part of notebook-1."""
    file = ended("default/notebook-1")
    found = gpuconsole("whatif", "fractions-kai", "--until", "20m", "-f", file)
    answer = body(gpuconsole("whatif", "fractions-kai", "--until", "20m", "-f", file, "-o", "json").out)["answer"]

    assert [line.split() for line in found.lines[3:5]] == [
        ["START", "TIME", "CHANGES", "QUEUE", "GPUS", "BASELINE", "CHANGED"],
        ["default/notebook-4", "team", "1", "–", "+0s"],
    ]
    assert ["mean", "utilization", "–", "100.0%", "100.0%"] in [line.split() for line in found.lines]
    assert (answer["empty"], answer["placeless_without"], answer["placeless"]) == (False, 1, 0)


def test_the_jobs_of_volcano_are_compared_by_their_pods(gpuconsole: Line, ended: Callable[[str], Path]) -> None:
    """Of eight GPUs research has six and product two; each has pods that wait, and works meanwhile."""
    file = ended("VolcanoJob/default/research")
    answer = body(gpuconsole("whatif", "proportion-volcano", "--until", "20m", "-f", file, "-o", "json").out)["answer"]

    assert [(one["workload"], one["queue"], one["gpus"], one["without"]) for one in answer["shifts"]] == [
        ("VolcanoJob/default/product", "product", 6, None),
    ]
    assert (answer["gpus_now"], answer["gpus_without"], answer["gpus"]) == (8, 8, 8)
    assert [(one["queue"], one["used_now"], one["used_without"], one["used"]) for one in answer["queues"]] == [
        ("product", 2, 2, 8),
        ("research", 6, 6, 0),
    ]


def test_a_lone_pod_that_is_asked_for_has_its_gpus_its_node_and_what_it_waits_for(
    gpuconsole: Line, tmp_path: Path
) -> None:
    """Training ends and leaves two GPUs: notebook-4, which waits already, shares one, and one pod gets the other."""
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "labels": {"kai.scheduler/queue": "team"}},
            "spec": {
                "schedulerName": "kai-scheduler",
                "containers": [{"name": "main", "image": "x:1", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
            },
        }
        for name in ("one", "two")
    ]
    file = tmp_path / "pods.yaml"
    file.write_text(json.dumps({"horizon": "1m", "steps": [{"finish": ["default/training"], "create": pods}]}))
    result = gpuconsole("whatif", "fractions-kai", "--until", "20m", "-f", file)
    assert result.lines[2:4] == [
        "default/one, 1 GPU: admitted at +0s on node-1",
        "default/two, 1 GPU: not admitted before the horizon. No node fits its pods: 1 node(s) didn't have "
        "enough resources: GPUs. (no nodes with enough resources were found: 1 node(s) didn't have enough resources: "
        "GPUs.)",
    ]


def test_a_job_without_a_workload_that_runs_already_is_not_called_not_admitted(
    gpuconsole: Line, tmp_path: Path
) -> None:
    file = tmp_path / "priority.yaml"
    command = "{type: set-priority, workload: VolcanoJob/default/sweep, priority: 5}"
    file.write_text(f"horizon: 1m\nsteps:\n- commands: [{command}]\n")
    result = gpuconsole("whatif", "reclaim-volcano", "--until", "15m", "-f", file)
    assert (result.status, result.lines[2:]) == (
        1,
        [
            "refused: steps[0].commands[0] (set-priority VolcanoJob/default/sweep):"
            " VolcanoJob/default/sweep has no Workload object, which this command needs",
            "VolcanoJob/default/sweep, 8 GPUs: already admitted since 2026-01-05T08:00:00Z; Partially scheduled"
            " gang: it has its minimum of pods, 3 minAvailable, 4 Pending, 4 Running",
        ],
    )


TWO_NODES = """
{apiVersion: kueue.x-k8s.io/v1beta2, kind: ResourceFlavor, metadata: {name: h200}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: prod}
spec:
  namespaceSelector: {}
  resourceGroups:
    - coveredResources: [nvidia.com/gpu]
      flavors: [{name: h200, resources: [{name: nvidia.com/gpu, nominalQuota: 16}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: lq-prod, namespace: prod}
spec: {clusterQueue: prod}
"""


@pytest.mark.parametrize("leave", ["{type: drain, node: %s}", "{type: requeue, workload: prod/serve-extra}"])
def test_a_place_that_comes_after_an_eviction_is_not_told_as_the_first_one(
    gpuconsole: Line, tmp_path: Path, leave: str
) -> None:
    """A pod of 8 GPUs was said to start on two nodes of 8."""
    cluster, file = tmp_path / "cluster.yaml", tmp_path / "change.yaml"
    cluster.write_text(TWO_NODES)

    def nodes(*steps: str) -> list[str]:
        file.write_text("\n".join([SERVE, "---", "steps:", "  - advanceSeconds: 0", *steps]))
        found = body(gpuconsole("whatif", cluster, "-f", file, "--horizon", "1h", "-o", "json").out)
        (outcome,) = found["answer"]["outcomes"]
        assert "serve-extra" in outcome["workload"]
        return list(outcome["nodes"])

    (first,) = nodes()
    cordoned = f"{{type: cordon, node: {first}, cordoned: true}}"
    change = leave % first if "%s" in leave else leave
    assert nodes(f"  - advanceSeconds: 600\n    commands: [{cordoned}, {change}]") == [first]
