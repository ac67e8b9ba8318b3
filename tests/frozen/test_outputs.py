"""What the commands print on the bundled fixtures, as a whole: for people, and as JSON."""

import json
import re
from pathlib import Path

import pytest

from gpuconsole.cli import COMMANDS
from gpuconsole.cli.options import OpenRequest
from gpuconsole.cli.sources import open_simulation
from gpuconsole.model.clock import HOUR
from tests.frozen.freezing import check, pretty
from tests.support.command_line import Line, Result
from tests.support.recorded_histories import record

CREATE = """
horizon: 30m
steps:
  - commands: [{type: set-quota, clusterQueue: cq-prod, flavor: a100, resource: nvidia.com/gpu, nominal: 24}]
    create:
      - apiVersion: batch/v1
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
  - advanceSeconds: 300
    finish: [research/embed]
"""
OTHER = """
steps:
  - commands:
      - {type: set-priority, workload: prod/serve, priority: 5}
      - {type: drain, node: a100-1}
      - {type: finish, workload: no/body}
"""
BROKEN = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: cq}
spec:
  cohort: org
  namespaceSelector: {}
  resourceGroups:
    - coveredResources: [nvidia.com/gpu]
      flavors: [{name: a100, resources: [{name: nvidia.com/gpu, nominalQuota: many}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: lq, namespace: team}
spec: {clusterQueue: other}
---
apiVersion: batch/v1
kind: Job
metadata: {name: train, namespace: team, labels: {kueue.x-k8s.io/queue-name: lost}}
spec: {template: {spec: {restartPolicy: Always, containers: []}}}
---
apiVersion: example.com/v1
kind: Widget
metadata: {name: w}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: d, namespace: team}
"""
GOOD = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: cq}
spec:
  namespaceSelector: {}
  resourceGroups:
    - coveredResources: [nvidia.com/gpu]
      flavors: [{name: a100, resources: [{name: nvidia.com/gpu, nominalQuota: 8}]}]
"""
DOUBTFUL = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: a100}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: cq}
spec:
  namespaceSelector: {}
  resourceGroups:
    - coveredResources: [nvidia.com/gpu]
      flavors: [{name: a100, resources: [{name: nvidia.com/gpu, nominalQuota: 8}]}]
"""
MORE = """
horizon: 20m
steps:
  - commands:
      - {type: add-nodes, like: h100-01, count: 2}
      - {type: set-stop-policy, queue: vision, policy: HoldAndDrain}
"""
MIG = """
name: mig
engine:
  admission: none
  sharing: [{nodeSelector: {pool: mig}, mig: {config: all-3g.40gb}}]
objects:
  - &node
    apiVersion: v1
    kind: Node
    metadata: {name: n1, labels: {pool: mig, nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB}}
    status: {allocatable: {cpu: "64", memory: 512Gi, nvidia.com/gpu: "2", pods: "110"}}
  - {<<: *node, metadata: {name: n2, labels: {nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB}}}
  - {<<: *node, metadata: {name: n3, labels: {nvidia.com/gpu.product: NVIDIA-L4}}}
steps:
  - create:
      - apiVersion: v1
        kind: Pod
        metadata: {name: half}
        spec: {containers: [{name: main, image: a, resources: {limits: {nvidia.com/mig-3g.40gb: "3"}}}]}
"""
BARE = json.dumps({"name": "x", "start": "2026-01-05T08:00:00Z", "objects": [], "steps": [{}]})
FILES = {
    "create.yaml": CREATE,
    "other.yaml": OTHER,
    "broken.yaml": BROKEN,
    "good.yaml": GOOD,
    "doubtful.yaml": DOUBTFUL,
    "more.yaml": MORE,
    "mig.yaml": MIG,
    "bare.jsonl": BARE,
}
RECLAIMED = "org-cohort --until 81m"
"""One workload of research was preempted, and is pending."""
BOTH = {
    "antipatterns": "antipatterns two-jobs-without --until 1h",
    "cost": "cost org-cohort --until 3h --by workload",
    "cost-of-a-team": "cost org-cohort --until 3h --team research",
    "cost-budgets": "cost org-cohort --until 3h --budget research=60 --budget prod=100000",
    "eta": f"eta research/rlhf {RECLAIMED} --runs 3 --horizon 12h",
    "eta-of-what-runs": f"eta prod/serve {RECLAIMED} --runs 1",
    "forecast": f"forecast {RECLAIMED}",
    "forecast-before-a-preemption": "forecast org-cohort --until 80m",
    "forecast-check": "forecast --check --for 90m --every 30s org-cohort",
    "ledger": "ledger org-cohort --until 30m",
    "lint": "lint broken.yaml",
    "lint-warning": "lint doubtful.yaml",
    "lint-fixture": "lint three-teams",
    "mig": "mig mig.yaml --until 1s --config all-balanced",
    "plan": f"plan -f create.yaml --wait 1m --horizon 20m {RECLAIMED}",
    "preemptions": f"preemptions {RECLAIMED}",
    "preemptions-of-one": f"preemptions research/rlhf {RECLAIMED}",
    "preemptions-default": "preemptions default --until 10m",
    "preemptions-of-pods": "preemptions tiers --until 2h",
    "risk": "risk org-cohort --until 30m --runs 2 --horizon 1h",
    "shares": "shares three-teams --until 30m",
    "shares-fair": "shares final-share --until 30m",
    "shares-volcano": "shares reclaim-volcano --until 10m",
    "shares-kai": "shares reclaim-kai --until 10m",
    "slots": "slots org-cohort --until 30m",
    "slots-mig": "slots seven-1g",
    "validate": "validate --strict broken.yaml",
    "validate-fixture": "validate org-cohort",
    "whatif": "whatif org-cohort --until 50m -f create.yaml",
    "whatif-against": "whatif org-cohort --until 50m -f create.yaml --against other.yaml --horizon 10m",
    "whatif-default": "whatif default --until 10m -f more.yaml",
    "whatif-refused": "whatif org-cohort --until 50m -f other.yaml",
    "whatif-engines": "whatif org-cohort --engine volcano --engine kai --horizon 3h",
    "why": f"why research/rlhf {RECLAIMED}",
    "why-gang": "why train six-of-eight --until 10m",
    "why-of-what-runs": f"why prod/serve {RECLAIMED}",
}
"""Name → a question that is answered for people and as JSON."""
OTHERS = {
    "help": "--help",
    **{f"help-{name}": f"{name} --help" for name in COMMANDS},
    "help-drill-run": "drill run --help",
    "help-drill-play": "drill play --help",
    "help-snapshot-save": "snapshot save --help",
    "cost-csv": "cost burst-karpenter --until 30m --by queue -o csv",
    "cost-focus": "cost org-cohort --until 2h -o focus",
    "cost-html": "cost org-cohort --until 3h -o html",
    "cost-markdown": "cost spot-reclaim --until 90m --by gpu-type -o markdown",
    "drill": "drill run two-jobs-without three-nodes org-cohort",
    "drill-wrong": "drill run other.yaml broken.yaml",
    "keys": "keys",
    "ledger-without-kueue": "ledger reclaim-volcano",
    "run-without-a-terminal": "run",
    "simulate": "simulate org-cohort --until 3h",
    "simulate-pools": "simulate burst-karpenter --until 30m",
    "simulate-refused": "simulate two-jobs --until 1h --type evicted",
    "unknown-command": "nothing",
    "unknown-fixture": "slots nothing",
    "unknown-option": "slots --nothing",
    "unknown-workload": "why nobody org-cohort",
    "validate-defaults": "validate good.yaml --defaults",
    "version": "--version",
    "without-a-file": "simulate nothing.yaml",
}
"""Name → what is printed for people only."""
JSON = {
    "antipatterns-default": "antipatterns default --until 1h -o json",
    "forecast-default": "forecast default --until 40m -o json",
    "ledger-default": "ledger default --until 1h -o json",
    "risk-default": "risk default --until 20m --runs 2 --horizon 10m -o json",
    "shares-default": "shares default --until 40m -o json",
    "slots-default": "slots default --until 40m -o json",
    "keys": "keys -o json",
    "simulate": "simulate org-cohort --until 3h -o json",
    "simulate-gang": "simulate gang-without -o json --type started --type deadlock",
    "simulate-pools": "simulate spot-reclaim --until 90m -o json",
    "validate-defaults": "validate good.yaml --defaults -o json",
}
"""Name → what is printed as one JSON document only."""
LINES = {
    "simulate-lines": "simulate org-cohort --until 3h -o jsonl",
    "simulate-lines-mig": "simulate seven-1g -o jsonl",
    "simulate-bare": "simulate --cycles bare.jsonl",
}
"""Name → what is printed as one JSON document a line."""


@pytest.fixture(autouse=True)
def files(gpuconsole: Line) -> None:
    """The files of the questions, in the folder where the command runs."""
    for name, text in FILES.items():
        Path(name).write_text(text)


def plain(text: str) -> str:
    """Without the folders of this machine, and without the time that it took."""
    for folder, name in ((Path.cwd(), "$HERE"), (Path(__file__).parents[2], "$PROJECT")):
        text = text.replace(str(folder), name)
    return re.sub(r'time="\d+\.\d+"', 'time="…"', text)


def told(arguments: str, result: Result) -> str:
    parts = [f"$ gpuconsole {arguments}", f"status {result.status}", "", result.out]
    if result.err:
        parts += ["--- stderr ---", result.err]
    return plain("\n".join(parts))


def as_document(arguments: str, result: Result) -> dict[str, object]:
    return {"command": f"gpuconsole {arguments}", "status": result.status, "stderr": plain(result.err).splitlines()}


@pytest.mark.parametrize("name", BOTH | OTHERS)
def test_text(gpuconsole: Line, name: str) -> None:
    arguments = (BOTH | OTHERS)[name]
    check(f"outputs/{name}.txt", told(arguments, gpuconsole(*arguments.split())))


@pytest.mark.parametrize("name", BOTH | JSON)
def test_json(gpuconsole: Line, name: str) -> None:
    arguments = JSON.get(name) or f"{BOTH[name]} -o json"
    result = gpuconsole(*arguments.split())
    check(f"outputs/{name}.json", pretty({**as_document(arguments, result), "stdout": json.loads(plain(result.out))}))


@pytest.mark.parametrize("name", LINES)
def test_json_lines(gpuconsole: Line, name: str) -> None:
    result = gpuconsole(*LINES[name].split())
    found = [json.loads(plain(line)) for line in result.lines]
    check(f"outputs/{name}.json", pretty({**as_document(LINES[name], result), "stdout": found}))


def test_junit(gpuconsole: Line) -> None:
    gpuconsole("drill", "run", "two-jobs-without", "broken.yaml", "--junit", "report.xml")
    check("outputs/drill-junit.xml", plain(Path("report.xml").read_text()))


@pytest.mark.parametrize("redact", [False, True], ids=["whole", "redacted"])
def test_saved_snapshot(gpuconsole: Line, redact: bool) -> None:
    more = ["--redact"] if redact else []
    result = gpuconsole("snapshot", "save", "saved.json", *RECLAIMED.split(), *more)
    assert (result.status, result.err) == (0, "")
    saved = json.loads(plain(Path("saved.json").read_text()))
    name = "snapshot-redacted" if redact else "snapshot"
    check(f"outputs/{name}.json", pretty({"stdout": result.out, "file": saved}))


RECORDED = {
    "at-ledger": "at 2026-01-05T08:30Z ledger",
    "at-why": "at 2026-01-05T09:30Z why research/rlhf",
    "cost-history": "cost --by workload",
    "cost-history-of-a-team": "cost --month 2026-01 --team research",
    "history-info": "history info",
    "report-week": "report --week",
}
"""Name → a question about `history.db`, three hours of org-cohort, that is answered for people and as JSON."""
RECORDED_TEXTS = {
    "report-week-html": "report --week 2026-W02 -o html",
    "report-of-another-week": "report --week 2026-W20",
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A history file: controllers take no time in it."""
    file = tmp_path_factory.mktemp("recorded") / "history.db"
    record(file, open_simulation(OpenRequest(files=("org-cohort",))).simulation, 3 * HOUR, source="org-cohort")
    return file.read_bytes()


@pytest.fixture
def history(recorded: bytes, gpuconsole: Line) -> None:
    Path("history.db").write_bytes(recorded)


@pytest.mark.usefixtures("history")
@pytest.mark.parametrize("name", RECORDED | RECORDED_TEXTS)
def test_text_about_a_recording(gpuconsole: Line, name: str) -> None:
    arguments = f"{(RECORDED | RECORDED_TEXTS)[name]} --history history.db"
    found = told(arguments, gpuconsole(*arguments.split()))
    check(f"outputs/{name}.txt", without_sizes(found) if name == "history-info" else found)


@pytest.mark.usefixtures("history")
@pytest.mark.parametrize("name", RECORDED)
def test_json_about_a_recording(gpuconsole: Line, name: str) -> None:
    arguments = f"{RECORDED[name]} --history history.db -o json"
    result = gpuconsole(*arguments.split())
    found = json.loads(plain(result.out))
    if name == "history-info":
        answer = found["answer"]
        answer |= dict.fromkeys(("bytes", "bytes_per_hour", "schema_version"), "…")
        assert {"sessions", "cost_hours", "event_blocks"} <= {table["name"] for table in answer["tables"]}
        answer["tables"] = [dict.fromkeys(answer["tables"][0], "…")]
    check(f"outputs/{name}.json", pretty({**as_document(arguments, result), "stdout": found}))


def without_sizes(text: str) -> str:
    """Without what depends on the schema and on the version of SQLite: sizes, and the rows of each table."""
    text = re.sub(r"\d+\.\d kB|(?<=schema version )\d+", "…", text)
    return re.sub(r"(?<=^TABLE)(.*)\n(?:\w+ +\d.*\n?)+", r"\1\n…\n", text, flags=re.MULTILINE)


ELSEWHERE = {"alerts", "metrics", "record", "shadow", "web"}
"""Commands that serve and record until they are stopped, or read recordings: tests/services and tests/cli assert what
they write."""


def test_every_command_is_asked() -> None:
    questions = (BOTH | OTHERS | RECORDED).values()
    asked = {text.split()[0] for text in questions if not text.endswith("--help")} | {"snapshot"}
    assert set(COMMANDS) - asked == ELSEWHERE
