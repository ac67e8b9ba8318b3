"""The commands as a process's main function sees them: output, messages, exit statuses."""

import json
import re
from pathlib import Path

import pytest

from gpuconsole import __version__
from gpuconsole.cli import COMMANDS
from gpuconsole.cli.options import fixtures
from tests.support.command_line import Line

QUEUES = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: a100}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: cq}
spec:
  namespaceSelector: {}
  preemption: {withinClusterQueue: LowerPriority}
  resourceGroups:
  - coveredResources: [nvidia.com/gpu]
    flavors: [{name: a100, resources: [{name: nvidia.com/gpu, nominalQuota: 8}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: lq, namespace: team}
spec: {clusterQueue: cq}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: high}
value: 1000
"""
JOB = """---
apiVersion: batch/v1
kind: Job
metadata:
  name: {name}
  namespace: team
  labels: {{kueue.x-k8s.io/queue-name: lq{priority}}}
  annotations: {{gpuconsole.io/duration: 90m}}
spec:
  suspend: true
  template:
    spec:
      restartPolicy: Never
      containers:
      - {{name: main, image: x, resources: {{requests: {{nvidia.com/gpu: 8}}, limits: {{nvidia.com/gpu: 8}}}}}}
"""
NODE = """
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {allocatable: {cpu: 8, memory: 64Gi, pods: 100, nvidia.com/gpu: 8}}
"""
LOW = JOB.format(name="low", priority="")


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    file = tmp_path / "cluster.yaml"
    file.write_text(QUEUES + LOW)
    return file


def test_the_version(gpuconsole: Line) -> None:
    assert gpuconsole("--version").out == f"gpuconsole {__version__}\n"


def test_the_help_names_every_command_and_the_log(gpuconsole: Line, tmp_path: Path) -> None:
    said = gpuconsole("--help").out
    listed = re.findall(r"^  ([a-z-]+)  ", said.partition("Commands:\n")[2], re.MULTILINE)
    assert listed[: len(COMMANDS)] == [*COMMANDS]
    assert str(tmp_path / "state" / "gpuconsole.log") in said.replace("\n", "").replace(" ", "")


def test_help_is_there_even_if_the_settings_are_wrong(gpuconsole: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUCONSOLE_SIMULATION__SPEED", "0")
    result = gpuconsole("--help")
    assert (result.status, "Usage: gpuconsole" in result.out) == (0, True)
    assert result.err == "gpuconsole: GPUCONSOLE_SIMULATION__SPEED: simulation.speed: Expected `float` >= 1.0\n"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        pytest.param(["fly"], "No such command 'fly'.", id="an unknown command"),
        pytest.param(["simulate", "--until", "soon"], "'soon' is not a duration; write it as", id="a wrong duration"),
        pytest.param(["simulate", "--until", "99999999h"], "the limit is 292 years", id="too long a duration"),
        pytest.param(["simulate", "nowhere.yaml"], "nowhere.yaml: no such file, folder or", id="no file"),
        pytest.param(["validate", "nowhere.yaml"], "nowhere.yaml: no such file, folder or", id="no manifest"),
        pytest.param(
            ["slots", "--live", "--kubeconfig", "no"], "no kubeconfig at no; set --kubeconfig", id="no kubeconfig"
        ),
        pytest.param(["slots", "--context", "x"], "--namespace need --live", id="a context that nobody reads"),
        pytest.param(["simulate", "--live", "x"], "use only one of FILES, --live and --snapshot", id="two sources"),
        pytest.param(["run"], "the console needs a terminal", id="a console without a terminal"),
        pytest.param([], "the console needs a terminal", id="nothing, without a terminal"),
        pytest.param(["validate"], "Missing argument 'FILES...'.", id="nothing to validate"),
        pytest.param(
            ["drill", "play", "gang"], "`gpuconsole drill play` needs a terminal", id="a drill without a terminal"
        ),
        pytest.param(["drill"], "Missing command.", id="nothing to do with drills"),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(gpuconsole: Line, arguments: list[str], complaint: str) -> None:
    result = gpuconsole(*arguments)
    assert (result.status, result.out) == (2, "")
    [line] = result.err.splitlines()
    assert line.startswith("gpuconsole: ")
    assert complaint in line


def test_a_wrong_setting_is_status_2_and_names_the_variable(
    gpuconsole: Line, manifests: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUCONSOLE_SIMULATION__SEED", "x")
    result = gpuconsole("simulate", manifests)
    assert (result.status, result.err) == (
        2,
        "gpuconsole: GPUCONSOLE_SIMULATION__SEED: simulation.seed: Expected `int | null`, got `str`\n",
    )


def test_an_error_in_the_input_has_its_place_and_status_1(gpuconsole: Line, manifests: Path) -> None:
    manifests.write_text(manifests.read_text().replace("nvidia.com/gpu: 8", "nvidia.com/gpu: 0.5"))
    for command in ("simulate", "validate"):
        result = gpuconsole(command, manifests)
        assert result.status == 1
        assert f"{manifests}:" in result.out + result.err
        assert "MIG" in result.out + result.err


def test_validate_counts_what_it_read(gpuconsole: Line, manifests: Path) -> None:
    result = gpuconsole("validate", manifests)
    assert result.status == 0
    assert result.lines == [
        "read: 1 ClusterQueue, 1 Job, 1 LocalQueue, 1 ResourceFlavor, 1 WorkloadPriorityClass",
        "0 errors, 0 warnings, 0 notes",
    ]


def test_validate_gives_programs_all_findings(gpuconsole: Line, manifests: Path) -> None:
    manifests.write_text(manifests.read_text().replace("cluster_queue", "x").replace("value: 1000", "value: many"))
    result = gpuconsole("validate", manifests, "-o", "json")
    report = json.loads(result.out)
    assert result.status == (1 if report["errors"] else 0)
    [finding] = [finding for finding in report["findings"] if finding["path"] == "value"]
    assert finding["file"] == str(manifests)
    assert manifests.read_text().splitlines()[finding["line"] - 1] == "value: many"


def test_a_scenario_is_validated_with_all_that_is_in_it(gpuconsole: Line, tmp_path: Path) -> None:
    scenario = tmp_path / "scenario.yaml"
    node = "- {apiVersion: v1, kind: Node, metadata: {name: node-1}, status: {capacity: {cpu: 1}}}"
    scenario.write_text(f"name: s\nobjects:\n{node}\nsteps:\n- expect: [{{admited: []}}]\n- advanceSeconds: -1\n")
    result = gpuconsole("validate", scenario)
    assert result.status == 1
    assert result.lines == [
        f"{scenario}:6: error: steps[1].advanceSeconds: -1 is before the last step; time goes on",
        "read: no supported objects",
        f"scenario: {scenario}",
        "1 error, 0 warnings, 0 notes",
    ]
    scenario.write_text(scenario.read_text().replace("-1", "1"))
    result = gpuconsole("validate", scenario)
    assert result.status == 1
    assert result.lines[0].startswith(f"{scenario}:5: error: steps[0].expect[0]: 'admited' is not a key of expect; ")
    assert result.lines[1:] == ["read: 1 Node", f"scenario: {scenario}", "1 error, 0 warnings, 0 notes"]


TYPES = """name: s
seed: one
engine:
  placement: {engine: Volcan0}
steps:
  - advanceSeconds: ten
    commands:
      - {type: fail-node}
  - advanceSeconds: 1
    advancSeconds: 10
"""


def test_whatever_is_wrong_with_a_scenario_has_its_line_and_what_would_be_right(
    gpuconsole: Line, tmp_path: Path
) -> None:
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(TYPES)
    want = [
        f"{scenario}:2: error: seed: 'one' stands where a whole number belongs; write a whole number",
        f"{scenario}:4: error: engine.placement.engine: Invalid enum value 'Volcan0'; "
        "it must be one of KAI, Volcano, kube-scheduler",
        f"{scenario}:6: error: steps[0].advanceSeconds: 'ten' stands where a number belongs; write a number",
        f"{scenario}:10: error: steps[1]: unknown key 'advancSeconds'; did you mean 'advanceSeconds'?",
    ]
    assert gpuconsole("validate", scenario).lines[:4] == want
    assert gpuconsole("simulate", scenario).err.splitlines() == [f"gpuconsole: {line}" for line in want]
    assert gpuconsole("lint", scenario).lines[:4] == [f"{line} [scenario]" for line in want]
    scenario.write_text("steps: [{advanceSeconds: 1, commands: [{type: fail-node}]}]\n")
    assert gpuconsole("simulate", scenario).err == (
        f"gpuconsole: {scenario}:1: error: steps[0].commands[0]: node is missing; write it\n"
    )
    scenario.write_text("steps: 3\n")
    assert gpuconsole("validate", scenario).lines[0].endswith("steps: expected a list, found 3; write a list here")
    assert gpuconsole("validate", scenario).lines[-1] == "1 error, 0 warnings, 0 notes"


def test_every_bundled_scenario_is_valid(gpuconsole: Line) -> None:
    for file in fixtures().values():
        result = gpuconsole("validate", file)
        assert (result.status, result.lines[-1].split(",")[:2]) == (0, ["0 errors", " 0 warnings"]), file


def test_simulate_prints_one_event_a_line(gpuconsole: Line, manifests: Path) -> None:
    events = [json.loads(line) for line in gpuconsole("simulate", manifests, "-o", "jsonl").lines]
    told = [(event["t"], event["type"], event["queue"]) for event in events if event["type"] != "pod-bound"]
    assert told == [
        ("2026-01-05T08:00:00Z", "submitted", "cq"),
        ("2026-01-05T08:00:00Z", "admitted", "cq"),
        ("2026-01-05T08:00:00Z", "started", "cq"),
        ("2026-01-05T09:30:00Z", "finished", "cq"),
    ]
    assert {event["workload"].rsplit("-", 1)[0] for event in events} == {"team/job-low"}


def test_a_line_has_the_keys_of_an_event_and_the_report_the_texts_too(gpuconsole: Line) -> None:
    lines = [json.loads(line) for line in gpuconsole("simulate", "org-cohort", "-o", "jsonl").lines]
    keys = {"t", "type", "workload", "queue", "by", "reason", "gpus", "node"}
    assert {key for line in lines for key in line} == keys
    events = json.loads(gpuconsole("simulate", "org-cohort", "-o", "json").out)["events"]
    assert [{key: value for key, value in event.items() if key in keys} for event in events] == lines
    [evicted] = [event for event in events if event["type"] == "preempted"]
    assert evicted["message"].startswith("Preempted to accommodate a workload")


def test_pods_of_a_job_have_no_rows_but_those_that_were_evicted(gpuconsole: Line) -> None:
    report = json.loads(gpuconsole("simulate", "gang-without", "-o", "json").out)
    assert [row["workload"] for row in report["workloads"]] == ["default/serving", "PyTorchJob/default/train"]
    report = json.loads(gpuconsole("simulate", "three-nodes", "--type", "evicted", "-o", "json").out)
    assert sorted(row["workload"] for row in report["workloads"]) == [f"default/dev-{n}" for n in range(4)]
    assert {row["submitted"] for row in report["workloads"]} == {None}


def test_what_a_scenario_could_not_do_is_said_on_stderr(gpuconsole: Line, tmp_path: Path) -> None:
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text("steps:\n- {advanceSeconds: 60, finish: [default/nothere]}\n")
    result = gpuconsole("simulate", scenario, "-o", "jsonl", "--type", "finished")
    assert (result.status, result.out) == (0, "")
    assert result.err.splitlines() == [
        "gpuconsole: no Nodes, and no quota to make nodes from: no pod can be scheduled",
        "gpuconsole: +1m refused Finish: there is no unfinished workload, job or pod default/nothere",
    ]


def test_warnings_of_the_input_are_counted_on_stderr(gpuconsole: Line, manifests: Path) -> None:
    manifests.write_text(manifests.read_text().replace("  namespaceSelector: {}\n", ""))
    result = gpuconsole("simulate", manifests, "--type", "admitted", "-o", "jsonl")
    assert (result.out, result.err) == ("", f"gpuconsole: 1 warning; run gpuconsole validate {manifests} for details\n")
    opened = gpuconsole("simulate", manifests, "--type", "admitted", "-o", "jsonl", "--admit-all-namespaces")
    assert (len(opened.lines), opened.err) == (1, "")


def test_the_files_of_a_scenario_are_beside_it_wherever_it_is_named_from(gpuconsole: Line, manifests: Path) -> None:
    inner = manifests.parent / "inner"
    inner.mkdir()
    (inner / "scenario.yaml").write_text("name: s\nfiles: [../cluster.yaml]\nseed: 5\n")
    (manifests.parent / "node.yaml").write_text(NODE)
    for files in (["inner"], ["node.yaml", "inner/scenario.yaml"]):
        result = gpuconsole("simulate", *(manifests.parent / file for file in files))
        assert result.lines[-1].startswith("2026-01-05T08:00:00Z to 2026-01-06T08:00:00Z, seed 5: 1 admitted")


def test_simulate_filters_by_type(gpuconsole: Line, manifests: Path) -> None:
    result = gpuconsole("simulate", manifests, "-o", "jsonl", "--type", "finished", "--type", "started")
    assert [json.loads(line)["type"] for line in result.lines] == ["started", "finished"]


def test_simulate_stops_when_it_is_told_to(gpuconsole: Line, manifests: Path) -> None:
    report = json.loads(gpuconsole("simulate", manifests, "--until", "30m", "-o", "json").out)
    assert (report["start"], report["end"]) == ("2026-01-05T08:00:00Z", "2026-01-05T08:30:00Z")
    assert [(row["gpus"], row["state"], row["ended"]) for row in report["workloads"]] == [(8, "running", None)]


def test_a_preemption_names_the_preemptor_and_the_reason(gpuconsole: Line, tmp_path: Path) -> None:
    high = JOB.format(name="high", priority=", kueue.x-k8s.io/priority-class: high")
    scenario = tmp_path / "scenario.yaml"
    documents = [f"- {text.strip()}" for text in (QUEUES + LOW).split("---")]
    indented = "\n".join(document.replace("\n", "\n  ") for document in documents)
    late = high.strip("- \n").replace("\n", "\n      ")
    scenario.write_text(f"name: late\nobjects:\n{indented}\nsteps:\n- advanceSeconds: 600\n  create:\n    - {late}\n")
    result = gpuconsole("simulate", scenario, "-o", "jsonl", "--type", "preempted")
    [event] = [json.loads(line) for line in result.lines]
    assert event["workload"].startswith("team/job-low-")
    assert event["by"].startswith("team/job-high-")
    assert (event["reason"], event["gpus"], event["queue"]) == ("InClusterQueue", 8, "cq")


def test_the_table_sums_up_queues_and_workloads(gpuconsole: Line, manifests: Path) -> None:
    lines = gpuconsole("simulate", manifests).lines
    cells = [line.split() for line in lines if line]
    assert cells[1] == ["cq", "1", "0", "0", "1", "0s", "0.0", "0.00"]
    assert cells[3][1:] == ["cq", "8", "finished", "+0s", "+0s", "+1h30m", "0"]
    assert lines[-1].startswith("2026-01-05T08:00:00Z to 2026-01-06T08:00:00Z, seed 0: 1 admitted, 1 finished")


def test_the_same_seed_gives_the_same_events_and_another_one_others(gpuconsole: Line) -> None:
    def events(seed: int) -> str:
        return gpuconsole("simulate", "default", "--until", "20m", "--seed", str(seed), "-o", "jsonl").out

    assert events(5) == events(5) != events(6)


def test_nodes_can_be_given_apart(gpuconsole: Line, manifests: Path, tmp_path: Path) -> None:
    nodes = tmp_path / "nodes.yaml"
    nodes.write_text(
        "apiVersion: v1\nkind: Node\nmetadata: {name: big-one}\n"
        "status: {allocatable: {nvidia.com/gpu: 8, cpu: 64, memory: 512Gi, pods: 110}}\n"
    )
    result = gpuconsole("simulate", manifests, "--nodes", nodes, "-o", "jsonl", "--type", "pod-bound")
    assert [json.loads(line)["node"] for line in result.lines] == ["big-one"]
    refused = gpuconsole("simulate", manifests, "--nodes", manifests)
    assert refused.err == f"gpuconsole: {manifests}: it has no Node manifests\n"


def test_made_nodes_have_the_gpus_that_were_asked_for(gpuconsole: Line, manifests: Path) -> None:
    result = gpuconsole("simulate", manifests, "--gpus-per-node", "4", "-o", "jsonl", "--type", "pod-bound")
    assert result.lines == [], "a pod of 8 GPUs fits no node of 4"


def test_a_saved_snapshot_goes_on_where_it_was_left(gpuconsole: Line, manifests: Path, tmp_path: Path) -> None:
    saved = tmp_path / "snapshot.json"
    gpuconsole("simulate", manifests, "--until", "30m", "--save", saved)
    events = [json.loads(line) for line in gpuconsole("simulate", "--snapshot", saved, "-o", "jsonl").lines]
    assert [(event["t"], event["type"]) for event in events] == [("2026-01-05T09:30:00Z", "finished")]


SAVES = "create one with `gpuconsole snapshot save`; open manifests and scenarios without --snapshot"
ANEW = "save the cluster again with `gpuconsole snapshot save`"


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", f"not a snapshot: Input data was truncated; {SAVES}"),
        ("{", f"not a snapshot: Input data was truncated; {SAVES}"),
        ("[1, 2]", f"not a snapshot, but a list of 2 values; {SAVES}"),
        ("7", f"not a snapshot, but a number; {SAVES}"),
        ('"now"', f"not a snapshot, but a string; {SAVES}"),
        ("{}", f"not a snapshot: `time` and `objects` are required, found nothing; {SAVES}"),
        (
            '{"apiVersion": "v1", "kind": "List", "items": [], "a": 1, "b\\u001b": 2, "c": 3}',
            "not a snapshot: `time` and `objects` are required, found apiVersion, kind, items, a, b\ufffd"
            f" and 1 more; {SAVES}",
        ),
        ('{"time": "now", "objects": [], "recent": []}', f"time: expected `int`, got `str`; {ANEW}"),
        (
            '{"time": 1, "recent": [], "objects": [{"type": "Namespace", "name": "a"},'
            ' {"type": "Job", "namespace": "t", "name": "one", "failures": "x"}]}',
            f"Job/t/one failures: expected `int`, got `str`; {ANEW}",
        ),
        ('{"time": 1, "recent": [], "objects": [7]}', f"objects[0]: expected `object`, got `int`; {ANEW}"),
        ('{"format": 99, "objects": [], "time": 1}', "format 99 is not known; this version reads format 1"),
        (
            '{"time": 1, "recent": [], "objects": [{"type": "Job", "namespace": "t", "name": "one",'
            ' "rules": {"type": "batch", "completions": 4611686018427387904}}]}',
            "Job/t/one rules.completions: 4611686018427387904 is out of range; write 0 to 2147483647",
        ),
        (
            '{"time": 1, "recent": [], "objects": [{"type": "Node", "name": "n1",'
            ' "allocatable": {"cpu": 4611686018427387904, "nvidia.com/gpu": 4611686018427387904}}]}',
            "Node/n1 allocatable[nvidia.com/gpu]: 4611686018427387904 are more than a machine has; write 4096 or less",
        ),
    ],
)
def test_a_file_that_is_no_snapshot_says_what_is_wrong(gpuconsole: Line, tmp_path: Path, text: str, wrong: str) -> None:
    file = tmp_path / "snapshot.json"
    file.write_text(text)
    result = gpuconsole("simulate", "--snapshot", file)
    assert (result.status, result.err) == (2, f"gpuconsole: {file}: {wrong}\n")


def test_a_manifest_in_the_place_of_a_snapshot_is_said_where_to_go(gpuconsole: Line, manifests: Path) -> None:
    result = gpuconsole("slots", "--snapshot", manifests)
    assert result.status == 2
    assert result.err == (
        f"gpuconsole: {manifests}: not a snapshot: JSON is malformed: invalid character (byte 1); "
        "create one with `gpuconsole snapshot save`; open manifests and scenarios without --snapshot\n"
    )


def test_control_characters_in_names_do_not_reach_the_terminal(gpuconsole: Line, manifests: Path) -> None:
    manifests.write_text(manifests.read_text().replace("name: low", r'name: "lo\e[31mw"'))
    for command in (["validate"], ["simulate"], ["simulate", "-o", "jsonl"]):
        result = gpuconsole(command[0], manifests, *command[1:])
        assert "\x1b" not in result.out + result.err


def test_the_bare_mode_answers_each_line_with_a_line(gpuconsole: Line, tmp_path: Path) -> None:
    file = tmp_path / "scenarios.jsonl"
    empty = {"name": "empty", "start": "2026-01-05T08:00:00Z", "objects": [], "steps": []}
    file.write_text(f"{json.dumps(empty)}\n\n{json.dumps({**empty, 'name': 'again'})}\n")
    result = gpuconsole("simulate", "--cycles", file)
    assert [json.loads(line) for line in result.lines] == [
        {"name": "empty", "cycles": []},
        {"name": "again", "cycles": []},
    ]


def test_a_bare_scenario_that_cannot_be_run_is_status_1(gpuconsole: Line, tmp_path: Path) -> None:
    file = tmp_path / "scenarios.jsonl"
    file.write_text('{"name": "no start"}\n')
    result = gpuconsole("simulate", "--cycles", file)
    assert result.status == 1
    assert [json.loads(line) for line in result.lines] == [
        {"name": "no start", "cycles": [], "error": f"{file}:1: the scenario lacks 'start'"}
    ]
    assert gpuconsole("simulate", "three-nodes", "--cycles", file).status == 2


def test_keys_for_programs_is_the_whole_registry(gpuconsole: Line) -> None:
    keys = json.loads(gpuconsole("keys", "-o", "json").out)
    assert {"id", "keys", "label", "help", "scope"} <= set(keys[0])
    assert len(gpuconsole("keys").lines) == len(keys) + 1


@pytest.mark.parametrize("name", fixtures())
def test_every_bundled_fixture_is_valid(gpuconsole: Line, name: str) -> None:
    result = gpuconsole("validate", name)
    assert result.status == 0, result.out


def test_a_snapshot_shows_what_already_ran_in_it(gpuconsole: Line, manifests: Path, tmp_path: Path) -> None:
    saved = tmp_path / "snapshot.json"
    gpuconsole("simulate", manifests, "--until", "30m", "--save", saved)
    result = gpuconsole("simulate", "--snapshot", saved, "--until", "10m", "-o", "json")
    (row,) = json.loads(result.out)["workloads"]
    assert (row["queue"], row["state"], row["started"]) == ("cq", "running", "2026-01-05T08:00:00Z")
    (line,) = (
        line for line in gpuconsole("simulate", "--snapshot", saved, "--until", "10m").lines if "running" in line
    )
    assert line.split()[4:7] == ["-30m", "-30m", "–"], line


def test_a_snapshot_takes_no_other_nodes(gpuconsole: Line, manifests: Path, tmp_path: Path) -> None:
    saved = tmp_path / "snapshot.json"
    gpuconsole("simulate", manifests, "--until", "1m", "--save", saved)
    result = gpuconsole("simulate", "--snapshot", saved, "--nodes", manifests)
    assert (result.status, "apply to FILES only, not to --snapshot" in result.err) == (2, True)


def test_lost_work_is_priced_by_the_table_that_was_asked_for(gpuconsole: Line, tmp_path: Path) -> None:
    prices = tmp_path / "prices.yaml"
    prices.write_text("gpu-hour: {a100-80gb: 10}")
    usual = json.loads(gpuconsole("simulate", "org-cohort", "-o", "json").out)["queues"]
    dear = json.loads(gpuconsole("simulate", "org-cohort", "--prices", prices, "-o", "json").out)["queues"]
    lost = {row["queue"]: (row["lostGpuHours"], round(row["cost"], 2)) for row in (*usual, *dear)}
    assert {row["queue"]: round(row["cost"], 2) for row in usual} == {"cq-prod": 0.0, "cq-research": 13.26}
    assert lost["cq-research"] == (6.0, 60.0)


def test_a_wrong_price_table_is_named(gpuconsole: Line, tmp_path: Path) -> None:
    prices = tmp_path / "prices.yaml"
    prices.write_text("other: cheap")
    result = gpuconsole("simulate", "three-nodes", "--prices", prices)
    assert (result.status, str(prices) in result.err) == (1, True)


def test_all_namespaces_are_admitted_in_a_scenario_too(gpuconsole: Line, tmp_path: Path) -> None:
    documents = QUEUES.replace("  namespaceSelector: {}\n", "").split("---\n")
    items = "".join(
        "- " + text.strip().replace("\n", "\n  ") + "\n" for text in [*documents, LOW.removeprefix("---\n")]
    )
    file = tmp_path / "scenario.yaml"
    file.write_text(f"name: closed\nobjects:\n{items}steps: []\n")
    refused = gpuconsole("simulate", file, "-o", "jsonl", "--type", "admitted")
    admitted = gpuconsole("simulate", file, "--admit-all-namespaces", "-o", "jsonl", "--type", "admitted")
    assert (refused.lines, len(admitted.lines)) == ([], 1)


def test_a_saved_snapshot_is_no_manifest(gpuconsole: Line, tmp_path: Path) -> None:
    file = tmp_path / "s.json"
    assert gpuconsole("simulate", "three-nodes", "--until", "1h", "--save", file).status == 0
    result = gpuconsole("simulate", file)
    assert result.status == 1
    problem = f"{file}:1: error: this is a saved snapshot, not a manifest; open it with --snapshot FILE"
    assert result.err.splitlines() == [f"gpuconsole: {problem}"]
    assert gpuconsole("simulate", "--snapshot", file, "--until", "1h").status == 0


@pytest.mark.parametrize("source", [["campus"], ["--snapshot", "s.json"]], ids=["manifests", "a Snapshot"])
def test_a_catalogue_that_is_wrong_is_told_even_where_nobody_buys(
    gpuconsole: Line, tmp_path: Path, source: list[str]
) -> None:
    saved, bad = tmp_path / "s.json", tmp_path / "machines.yaml"
    assert gpuconsole("simulate", "three-nodes", "--until", "1h", "--save", saved).status == 0
    bad.write_text("zones: [a]\ntypes:\n  x.1: {cpu: many}\n")
    asked = [str(saved) if word == "s.json" else word for word in source]
    result = gpuconsole("simulate", *asked, "--until", "1h", "--catalogue", bad)
    assert result.status == 1
    told = f"gpuconsole: {bad}:3: types[x.1].cpu: 'many' is not a quantity; write it as 8 or 32Gi"
    assert result.err.splitlines() == [told]


EXPECTING = """\
name: expecting
objects: []
steps:
- advanceSeconds: 1
  expect:
  - admited: [a/b]
  - freeNodes: 3
    withn: 5s
"""
NO_KEYS = (
    "{file}:6: error: steps[0].expect[0]: 'admited' is not a key of expect; did you mean 'admitted'?",
    "{file}:8: error: steps[0].expect[1]: 'withn' is not a key of expect; use one of admitted, pending,",
)


@pytest.mark.parametrize("command", [["simulate"], ["why", "a/b"], ["shares"], ["slots"]], ids=" ".join)
def test_an_unknown_key_of_an_expectation_is_an_error_for_every_command(
    gpuconsole: Line, tmp_path: Path, command: list[str]
) -> None:
    file = tmp_path / "expecting.yaml"
    file.write_text(EXPECTING)
    result = gpuconsole(*command, file)
    assert (result.status, result.lines) == (1, [])
    for told, wanted in zip(result.err.splitlines(), NO_KEYS, strict=True):
        assert told.startswith(f"gpuconsole: {wanted.format(file=file)}")


def test_an_unknown_key_of_a_bare_scenario_is_an_error_with_file_and_line(gpuconsole: Line, tmp_path: Path) -> None:
    good = {"name": "good", "start": "2026-01-05T08:00:00Z", "objects": [], "steps": []}
    file = tmp_path / "bare.jsonl"
    bad = [{"expect": [{"admited": []}]}, {"expect": [{"freeNodes": 1}]}, {"creat": []}]
    file.write_text(f"{json.dumps(good)}\n\n{json.dumps({**good, 'steps': bad})}\n")
    result = gpuconsole("simulate", "--cycles", file)
    assert result.status == 1
    assert [json.loads(line).get("error") for line in result.lines] == [
        None,
        f"{file}:3: steps[2]: unknown key 'creat'; did you mean 'create'?; "
        f"{file}:3: steps[0].expect[0]: 'admited' is not a key of expect; did you mean 'admitted'?",
    ]
