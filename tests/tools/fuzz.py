"""Mutated files of every kind through every command: `python -m tests.tools.fuzz --seed N --count N`.

Each input is a valid file with a few mutations. The command must end with status 0, 1 or 2 within `PATIENCE`, and say
on stderr what is wrong where it has no answer; an exception is a failure. The same seed gives the same inputs.
"""

import argparse
import json
import os
import random
import re
import signal
import sqlite3
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple
from unittest.mock import patch

import yaml
from click.testing import CliRunner

from gpuconsole.cli import _status
from gpuconsole.insight.cost.allocation import CostHour, CostKind, CostOwner
from gpuconsole.insight.forecast.backtest import DifferenceCause, ForecastDifference, ForecastDifferences
from gpuconsole.insight.forecast.estimates import Interval, PastEstimate
from gpuconsole.insight.series import QueueSample, Samples, SeriesKind
from gpuconsole.model.change_log import ChangeLogWriter
from gpuconsole.model.clock import MINUTE
from gpuconsole.model.cluster import Namespace
from gpuconsole.model.events import Applied, HistoryEvent, HistoryEventKind, KueueEvent
from gpuconsole.model.state import ClusterState
from gpuconsole.store.recorder import Opening, Recorder
from gpuconsole.ui.theme import ThemeError, load_themes
from tests.support.sample_manifests import DOCUMENTS

# ruff: noqa: E501

ROOT = Path(__file__).parents[2]
DRILLS = ROOT / "fixtures" / "drills"
PATIENCE = 20
"""Seconds for one command; what takes longer does not end as far as anybody knows."""
MOST_MUTATIONS = 4

Command = tuple[str, ...]
"""Arguments; `{file}` stands for the mutated file, `{folder}` for the folder it is in."""

QUESTIONS: tuple[Command, ...] = (
    ("shares",), ("slots",), ("ledger",), ("antipatterns",), ("risk",), ("mig", "--help"), ("forecast",), ("preemptions",),
    ("eta", "{subject}"), ("why", "{subject}"), ("plan", "-f", "{folder}/job.yaml"),
    ("forecast", "--check", "--for", "1m"), ("snapshot", "save", "{folder}/saved.json"), ("cost", "--until", "5m"),
)  # fmt: skip
"""What can be asked of any cluster."""
MORE_OF_FILES: tuple[Command, ...] = (
    ("whatif", "{file}", "--until", "5m", "-f", "{folder}/job.yaml", "--horizon", "3m"),
    ("whatif", "{file}", "--engine", "volcano", "--engine", "kai", "--horizon", "5m"),
    ("whatif", "{file}", "-f", "{folder}/job.yaml", "--against", "{folder}/pool.yaml", "--horizon", "3m"),
    ("plan", "{file}", "-f", "{file}", "--horizon", "5m"), ("mig", "{file}", "--config", "all-balanced"),
    ("drill", "run", "{file}", "--junit", "{folder}/results.xml"), ("drill", "run", "{file}", "--manifests", "{folder}/pool.yaml"),
    ("validate", "{file}", "--over", "{file}"), ("validate", "{file}", "--defaults"), ("lint", "{file}", "-o", "json"),
    ("simulate", "{file}", "--until", "5m", "--nodes", "{file}"),
    ("simulate", "{file}", "--until", "5m", "--admit-all-namespaces", "--gpus-per-node", "4", "-o", "json"),
    ("snapshot", "save", "{folder}/saved.json", "{file}", "--redact", "--until", "4m"),
    ("forecast", "{file}", "--until", "5m", "-o", "json"), ("why", "{subject}", "{file}", "--quick", "-o", "json"),
    ("eta", "{subject}", "{file}", "--runs", "2", "--horizon", "1h"), ("preemptions", "{subject}", "{file}", "--until", "10m", "-o", "json"),
    ("risk", "{file}", "--runs", "2", "--horizon", "30m", "-o", "json"), ("cost", "{file}", "--until", "5m", "-o", "focus"),
)  # fmt: skip
"""What else can be done with the files of a cluster."""
MORE_OF_SNAPSHOTS: tuple[Command, ...] = (
    ("forecast", "--check", "--snapshot", "{file}", "--against", "{file}"), ("preemptions", "{subject}", "--snapshot", "{file}"),
    ("snapshot", "save", "{folder}/again.json", "--snapshot", "{file}", "--redact"), ("slots", "--snapshot", "{file}", "-o", "json"),
    ("cost", "--snapshot", "{file}", "--by", "workload", "-o", "json"),
    ("mig", "--config", "all-balanced", "--snapshot", "{file}"), ("whatif", "--engine", "volcano", "--horizon", "4m", "--snapshot", "{file}"),
    ("risk", "--runs", "2", "--horizon", "20m", "--snapshot", "{file}"), ("plan", "-f", "{folder}/job.yaml", "--horizon", "4m", "--snapshot", "{file}"),
)  # fmt: skip
ODD: tuple[Any, ...] = (
    None, True, "", 0, -1, 1, 0.5, -0.0, 1e308, 2**31, 2**63, 2**64, 10**40, "9" * 60, "1e99", "NaN", ".inf", "-5", "1Ei",
    "0.0001", "500m", "a\x1b[2J", "\x00", "ü" * 300, "a/b/c", "../../etc/passwd", "{{}}", [], {}, [[]], [None], {"": None},
    {"a": {"b": []}}, ["a", 1, {}], "2026-13-45T99:00:00Z", "-1h", "nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "*", "~", "&a",
)  # fmt: skip
"""Values that stand where others are expected."""
TOKENS = (b"\x00", b"\xff", b"\xfe\xff", b"\xef\xbb\xbf", b"\t", b"\r", b"---\n", b"...", b"*a", b"&a ", b"<<: ", b"!!python",
          b"{", b"}", b"[", b"]", b":", b"- ", b"'", b'"', b"%", b"#", b"\xf0\x9f", b"9" * 40, b"-", b"\x85", b"|")  # fmt: skip
SCALARS = (
    "!!python/object/apply:os.system [id]", "!!binary a", "!!timestamp x", "!!set {a, b}", "!!omap [a: b]", "!!int x", "!!float 7",
    "!custom {a: b}", "!!merge x", "!!null x", "!!str 7", "2026-01-01", "2026-01-01T00:00:00Z", "0001-01-01T00:00:00+23:59",
    "9999-12-31T23:59:59Z", "0x1F", "0o17", "017", "1_000", "1:30:30", ".nan", "-.inf", "yes", "1e400", "1e1000000000", "9" * 5000,
    "-" + "9" * 5000, '"' + "x" * 300_000 + '"', '"\\ud800"', '"\\0"', '"\\u202e\\u2066"', "*nowhere", "&a [*a]", "&b {b: *b}",
    "|\n", ">-", "[", "{a", "@a", "`a", "%a", "0.1.2", "1Ki2", "1e-400Gi", "-1Ei", "99999999999E", "\u0661\u0662", "\u2167",
)  # fmt: skip
"""Scalars, nodes and half nodes that YAML or a number's form makes something of."""
KEYS = ("2026-01-01", "null", "true", "1", "1.5", ".nan", "~", "[a, b]", "{a: b}", "? a", '""', "<<", "!!binary YQ==", "*a", "&k key",
        "\u202ename", "name\u200b", "__class__", "__proto__", "y" * 100_000)  # fmt: skip
LINES = ("<<: 7", "<<: [1]", "<<: *nowhere", "<<: {a: b}", "<<: [{a: b}, {a: c}]", "? [a, b]\n: c", "? {a: b}", "---", "...", "- a", "\tb: c",
         "%YAML 9.9", "# \u202e", "2026-01-01: 2026-01-01", "key: &a {key: *a}", "!!map {}", "metadata: {}", "spec: []", "kind: 7")  # fmt: skip
_BOMB = "[&a [x, x, x, x, x, x, x, x, x]"
for _name, _next in zip("abcdefgh", "bcdefghi", strict=True):
    _BOMB += f", &{_next} [{', '.join([f'*{_name}'] * 9)}]"
_BOMB += "]"
NESTED = ("[" * 60 + "]" * 60, "[" * 5000 + "]" * 5000, "{a: " * 60 + "}" * 60, "{a: " * 3000 + "}" * 3000, "[" * 100_000, _BOMB,
          "{? " * 500 + "}" * 500, "[" + ", ".join(["{}"] * 20_000) + "]")  # fmt: skip
BEGINNINGS = ("---", "---\n---\n---", "...", "%YAML 1.1\n---", "%YAML 9.9\n---", "%TAG ! tag:example.org,2026:\n---", "%FOO\n---", "null\n---",
              "7\n---", "[]\n---", "# a\n---\n# b\n---", "a: b\n---", "\ufeff---", f"bomb: {_BOMB}\n---")  # fmt: skip
SEPARATORS = ("\r\n", "\r", "\u2028", "\u2029", "\x85", "\n\n", "\x0b", "\x0c", " ")
CHARACTERS = ("\x00", "\x07", "\x1b", "\x7f", "\x9b", "\u00a0", "\u00ad", "\u200b", "\u202e", "\u2066", "\ufeff", "\ufffe", "\ufffd", "\U0001f9d1\u200d",
              "\U0010ffff", "e\u0301", "\u0130", "\u00df", "'", '"', ":", "\t")  # fmt: skip
CELLS: tuple[Any, ...] = (None, -1, 0, 2**62, -(2**63), 1e308, float("inf"), "", "text", "9" * 50, "a\x00b", "\u202e", b"", b"\xff\xfe", "x" * 100_000, "[]",
                          "{}", "null", "7", '{"a":', "2026-01-01")  # fmt: skip
"""Values of a database."""
ENCODINGS: tuple[Callable[[str], bytes], ...] = (
    *[lambda text: text.encode("utf-8", "surrogatepass")] * 6,
    lambda text: text.encode("utf-8-sig", "surrogatepass"), lambda text: text.encode("utf-16", "surrogatepass"),
    lambda text: text.encode("utf-16-be", "surrogatepass"), lambda text: text.encode("utf-32", "surrogatepass"),
    lambda text: text.encode("latin-1", "replace"), lambda text: text.encode("cp1252", "replace"),
)  # fmt: skip
SQLITE = b"SQLite format 3\x00"
_SUBJECT = re.compile(r"\b[a-z][a-z0-9-]*/[a-z][a-z0-9-]*\b")
"""What looks like `namespace/name`."""
JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {name: wanted, namespace: team, labels: {kueue.x-k8s.io/queue-name: main}}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: a, resources: {limits: {nvidia.com/gpu: 1}}}]}}}
"""


class Kind(NamedTuple):
    """A kind of file: valid ones, their name, and the commands that read one."""

    samples: Sequence[bytes]
    name: str
    commands: Sequence[Command]
    structured: Callable[[Any], bytes] | None = None
    """How a decoded document is written again; None for files that are no documents."""
    environment: Mapping[str, str] = {}


class Case(NamedTuple):
    """One mutated input and what is done with it."""

    number: int
    kind: str
    name: str
    data: bytes
    command: Command
    environment: Mapping[str, str]


class TooLongError(BaseException):
    """The command did not end in time. No Exception, so that nobody takes it for one."""


def as_yaml(document: Any) -> bytes:
    parts = document if isinstance(document, _Documents) else [document]
    return yaml.safe_dump_all(parts, allow_unicode=True, sort_keys=False).encode("utf-8", "surrogatepass")


def as_json(document: Any) -> bytes:
    return "\n".join(json.dumps(part) for part in _parts(document)).encode("utf-8", "surrogatepass")


class _Documents(list[Any]):
    """Several documents of one file."""


def _parts(document: Any) -> Sequence[Any]:
    return document if isinstance(document, _Documents) else [document]


def kinds(scratch: Path) -> dict[str, Kind]:
    """All kinds of files. Those that the program writes itself are written into `scratch` first."""
    beside = str(ROOT / "fixtures" / "clusters").encode()
    drills = [path.read_bytes().replace(b"../clusters", beside) for path in sorted(DRILLS.glob("*.yaml"))]
    manifests = [yaml.safe_dump(document, sort_keys=False).encode() for document in DOCUMENTS.values()]
    clusters = [_manifests_of(data) for data in drills]
    of_manifests = [(*question, "{file}", *until) for question in QUESTIONS for until in ((), ("--until", "20m"))]
    of_manifests = [command for command in of_manifests if not ("--help" in command and "--until" in command)]
    checks: list[Command] = [("validate", "{file}"), ("validate", "--strict", "{file}"), ("lint", "{file}"),
                             ("simulate", "{file}", "--until", "10m"), ("validate", "-o", "json", "{file}")]  # fmt: skip
    steps: list[Command] = [("simulate", "{file}", "--until", "30m"), ("drill", "run", "{file}"), ("validate", "{file}"),
                            ("simulate", "{file}", "--until", "20m", "-o", "jsonl")]  # fmt: skip
    small, queued = str(DRILLS / "three-nodes.yaml"), str(DRILLS / "org-cohort.yaml")
    autoscaled = str(DRILLS / "burst-karpenter.yaml")
    saved: list[Command] = [*((*question, "--snapshot", "{file}") for question in QUESTIONS),
                            ("simulate", "--snapshot", "{file}", "--until", "10m"),
                            ("whatif", "--snapshot", "{file}", "-f", "{folder}/job.yaml", "--horizon", "5m")]  # fmt: skip
    bare = [json.dumps(_bare(data)).encode() for data in drills[:30]]
    return {
        "manifests": Kind([*manifests, *clusters], "manifests.yaml", [*checks, *checks, *of_manifests, *MORE_OF_FILES], as_yaml),
        "manifests as JSON": Kind(
            [json.dumps(document).encode() for document in DOCUMENTS.values()], "manifests.json",
            [*checks, *of_manifests], as_json),
        "scenario": Kind(drills, "scenario.yaml", [*steps, *of_manifests, *MORE_OF_FILES], as_yaml),
        "drill": Kind(drills, "drill.yaml", [("drill", "run", "{file}"), ("drill", "run", "{folder}")], as_yaml),
        "expectations": Kind(
            [data for data in drills if b"expect:" in data], "expecting.yaml", steps, as_yaml),
        "timed scenario": Kind(
            [json.dumps(_timed(data)).encode() for data in drills[:30]], "timed.jsonl", [("simulate", "--cycles", "{file}")], as_json),
        "bare scenario": Kind(bare, "bare.jsonl", [("simulate", "--cycles", "{file}")], as_json),
        "Kueue's Configuration": Kind(
            [_KUEUE.encode()], "kueue.yaml",
            [("simulate", queued, "--until", "5m", "--kueue-config", "{file}"), ("shares", queued, "--until", "10m", "--kueue-config", "{file}"),
             ("validate", "{file}")], as_yaml),
        "volcano-scheduler.conf": Kind(
            _confs("Volcano"), "volcano-scheduler.conf",
            [("whatif", small, "--engine", "volcano", "--conf", "{file}", "--horizon", "10m"), ("lint", "{file}"),
             ("simulate", "{folder}/with-volcano.yaml", "--until", "10m")], as_yaml),
        "KAI's configuration": Kind(
            [*_confs("KAI"), _KAI.encode()], "kai.yaml",
            [("simulate", "{folder}/with-kai.yaml", "--until", "10m"), ("lint", "{file}")], as_yaml),
        "prices": Kind(
            [(ROOT / "fixtures" / "prices.yaml").read_bytes()], "prices.yaml",
            [("simulate", small, "--until", "5m", "--prices", "{file}"), ("risk", small, "--prices", "{file}")], as_yaml),
        "instance types": Kind(
            [(ROOT / "fixtures" / "instances.yaml").read_bytes()], "instances.yaml",
            [("simulate", str(DRILLS / "spot-fallback.yaml"), "--until", "10m", "--catalogue", "{file}"),
             ("simulate", "{folder}/pool.yaml", "--until", "10m", "--catalogue", "{file}"),
             ("plan", autoscaled, "-f", "{folder}/job.yaml", "--catalogue", "{file}")], as_yaml),
        "nodes": Kind([data for data in clusters if b"kind: Node" in data], "nodes.yaml", [("slots", small, "--nodes", "{file}")], as_yaml),
        "saved simulation": Kind(_saved(scratch), "saved.json", [*saved, *MORE_OF_SNAPSHOTS], as_json),
        "configurations of mig-parted": Kind(
            [_MIG_PARTED.encode()], "parted.yaml",
            [("mig", str(DRILLS / "seven-1g.yaml"), "--config", name, "--mig-parted", "{file}") for name in ("all-balanced", "custom")], as_yaml),
        "history": Kind(
            [_history(scratch)], "history.db",
            [("preemptions", "--history"), ("forecast", "--check", "--history"), ("preemptions", "{subject}", "--history"),
             ("preemptions", "--history", "-o", "json"), ("history", "info"), ("history", "check"),
             ("history", "export", "events"), ("history", "export", "series", "-o", "jsonl"), ("history", "export", "costs"),
             ("history", "prune"), ("at", "-0s", "slots"), ("cost", "--history", "{folder}/history.db")], None, {"GPUCONSOLE_STATE_DIR": "{folder}"}),
        "config.yaml": Kind(
            [_CONFIG.encode()], "config.yaml", [("shares", small), ("--help",), ("forecast", "--check", "--history"), ("snapshot", "save", "{folder}/saved.json", small),
             ("risk", small, "--runs", "1", "--horizon", "5m"), ("simulate", small, "--until", "1m")],
            as_yaml, {"GPUCONSOLE_CONFIG": "{file}"}),
        "changes": Kind(
            [_CHANGES.encode(), *map(_changes, drills)], "changes.yaml",
            [("whatif", small, "-f", "{file}", "--horizon", "10m"),
             ("whatif", small, "-f", "{folder}/job.yaml", "--against", "{file}", "--horizon", "10m"),
             ("plan", small, "-f", "{file}")], as_yaml),
        "theme": Kind([path.read_bytes() for path in sorted((ROOT / "themes").glob("*.yaml"))], "theme.yaml", [()], as_yaml),
        "kubeconfig": Kind(
            [_KUBECONFIG.encode()], "kubeconfig.yaml", [("shares", "--live", "--kubeconfig", "{file}"), ("forecast", "--live", "--kubeconfig", "{file}", "--context", "here"),
             ("snapshot", "save", "{folder}/saved.json", "--live", "--kubeconfig", "{file}")], as_yaml),
    }  # fmt: skip


def _manifests_of(scenario: bytes) -> bytes:
    objects = yaml.safe_load(scenario).get("objects", [])
    return as_yaml(_Documents(objects))


def _bare(scenario: bytes) -> dict[str, Any]:
    """A scenario's objects as a bare scenario, which plays Workloads and no jobs."""
    document = yaml.safe_load(scenario)
    create = [thing for thing in DOCUMENTS.values() if thing["kind"] == "Workload"]
    steps = [{"advanceSeconds": 1, "create": create, "maxCycles": 3, "finish": ["team/w"]}]
    return {"name": "bare", "start": "2026-01-05T08:00:00Z", "objects": document.get("objects", []), "steps": steps}


def _timed(scenario: bytes) -> dict[str, Any]:
    """A bare scenario that is played second by second."""
    bare = _bare(scenario)
    return {**bare, "seconds": True, "steps": [{**step, "advanceSeconds": 30} for step in bare["steps"]]}


def _changes(scenario: bytes) -> bytes:
    """The steps of a scenario as changes of another cluster."""
    steps = yaml.safe_load(scenario).get("steps") or []
    kept = [{name: value for name, value in step.items() if name != "expect"} for step in steps]
    return as_yaml({"horizon": "10m", "steps": json.loads(json.dumps(kept, default=str))})


def _confs(engine: str) -> list[bytes]:
    found = []
    for path in sorted(DRILLS.glob("*.yaml")):
        placement = (yaml.safe_load(path.read_text()).get("engine") or {}).get("placement") or {}
        if placement.get("engine") == engine and placement.get("conf"):
            found.append(placement["conf"].encode())
    return found


def _saved(scratch: Path) -> list[bytes]:
    """Simulations of some engines as they are saved after a while."""
    found = []
    for name in ("three-nodes", "org-cohort", "gang", "seven-1g", "three-nodes-volcano", "reclaim-kai", "multikueue",
                 "spot-reclaim", "sla-volcano", "campus", "afs"):  # fmt: skip
        for until in ("1s", "20m"):
            file = scratch / f"{name}-{until}.json"
            status, _, error, _ = run(("simulate", name, "--until", until, "--save", str(file)))
            if not file.exists():
                raise RuntimeError(f"{name} could not be saved: status {status}, {error}")
            found.append(file.read_bytes())
    return found


def _history(scratch: Path) -> bytes:
    """A history with all kinds of lines, in one file."""
    recorder = Recorder(scratch / "h.db", Opening(version="1", mode="LIVE", source="here"), wall=lambda: 0)
    told = (KueueEvent("{subject}", "Preempted", "for another"),)
    lines = [
        HistoryEvent(time=n, what=what, workload=f"team/job-{n % 5}", by="team/other", gpus=8, queue="q", told=told)
        for n, what in enumerate(
            [*HistoryEventKind, *[HistoryEventKind.PREEMPTED] * 40, *[HistoryEventKind.EVICTED] * 20]
        )
    ]
    recorder.record(lines)
    one = ForecastDifference(
        time=1, workload="team/job", queue="q", forecast="waits", fact="admitted", cause=DifferenceCause.ORDER
    )
    recorder.compared(ForecastDifferences(decisions=9, agreed=8, differences=(one,)))
    recorder.add_estimates(
        [PastEstimate(workload="team/job", asked_at=1, median=2, interval=Interval(1, 3), started=2)]
    )
    recorder.audit(1, "command", "sent", "")
    owner = CostOwner(kind=CostKind.WORKLOAD, workload="team/job", team="team", gpu_type="l4")
    recorder.add_costs([CostHour(owner=owner, hour=0, gpu_seconds=60.0, used_usd=1.5)])
    queue = QueueSample(kind=SeriesKind.QUEUE, name="q", nominal=8.0, used=4.0)
    for minute in (1, 61):
        recorder.add_samples(Samples(time=minute * MINUTE, span=MINUTE, queues=(queue,), evictions={"Preempted": 1}))
    changes = ChangeLogWriter(ClusterState(1))
    changes.add([Applied(1, Namespace(name="team"))])
    recorder.add_changes(*changes.flush())
    changes.add([Applied(2 * MINUTE, Namespace(name="other"))])
    recorder.add_changes(*changes.flush())
    recorder.close()
    return (scratch / "h.db").read_bytes()


_KUEUE = """\
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
manageJobsWithoutQueueName: false
waitForPodsReady: {timeout: 5m, recoveryTimeout: 3m, blockAdmission: false, requeuingStrategy: {timestamp: Eviction, backoffLimitCount: 3}}
fairSharing: {preemptionStrategies: [LessThanOrEqualToFinalShare, LessThanInitialShare]}
admissionFairSharing: {usageHalfLifeTime: 168h, usageSamplingInterval: 5m, resourceWeights: {nvidia.com/gpu: 2}}
resources:
  excludeResourcePrefixes: [example.com]
  transformations: [{input: nvidia.com/mig-1g.5gb, strategy: Replace, outputs: {example.com/memory: 5Gi}}]
featureGates: {PartialAdmission: true}
integrations: {frameworks: [batch/job, pod]}
"""
_KAI = """\
actions: "allocate, consolidation, reclaim, preempt, stalegangeviction"
tiers:
- plugins:
  - name: proportion
  - name: nodeplacement
    arguments: {gpu: binpack, cpu: binpack}
  - name: minruntime
    arguments: {defaultPreemptMinRuntime: 5m}
"""
_CONFIG = """\
theme: dark
state_dir: /tmp/gpuconsole-fuzz-state
log_level: info
read_only: false
worker: false
simulation: {seed: 3, speed: 60, gpus_per_node: 8}
live: {requests: 10, burst: 20, protected: ["prod-*"], telemetry: {prometheus: "http://127.0.0.1:1", interval: 30, headers: {A: b}}}
"""
_MIG_PARTED = """\
version: v1
mig-configs:
  all-balanced:
  - devices: all
    mig-enabled: true
    mig-devices: {1g.5gb: 2, 2g.10gb: 1, 3g.20gb: 1}
  custom:
  - {device-filter: ["0x20B010DE"], devices: [0, 1], mig-enabled: false}
"""
_CHANGES = """\
horizon: 10m
steps:
- commands:
  - {type: cordon, node: node-1, cordoned: true}
  - {type: set-weight, queue: a, weight: 2}
- advanceSeconds: 5
  create:
  - apiVersion: batch/v1
    kind: Job
    metadata: {name: wanted, namespace: team, labels: {kueue.x-k8s.io/queue-name: main}}
    spec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: a}]}}}
"""
_KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: here
contexts: [{name: here, context: {cluster: c, user: u, namespace: team}}]
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1", certificate-authority-data: bm8=}}]
users: [{name: u, user: {token: abc, exec: null}}]
"""
_ENGINE = """\
name: with-engine
engine: {{admission: none, placement: {{engine: {engine}, conf: {conf}}}}}
objects:
- {{apiVersion: v1, kind: Node, metadata: {{name: n}}, status: {{allocatable: {{cpu: "64", memory: 512Gi, nvidia.com/gpu: "4", pods: "110"}}}}}}
- {{apiVersion: v1, kind: Pod, metadata: {{name: p}}, spec: {{schedulerName: {scheduler}, containers: [{{name: a, image: a, resources: {{limits: {{nvidia.com/gpu: "1"}}}}}}]}}}}
"""
_POOL = """\
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: gpu}
spec: {template: {spec: {requirements: [], nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: d}}}}
---
apiVersion: v1
kind: Pod
metadata: {name: p}
spec: {containers: [{name: a, image: a, resources: {limits: {nvidia.com/gpu: "1"}}}]}
"""


def cases(seed: int, count: int, made: Mapping[str, Kind]) -> Iterator[Case]:
    """`count` inputs, the kinds in turn."""
    names = list(made)
    for number in range(count):
        chance = random.Random(f"{seed}/{number}")
        name = names[number % len(names)]
        kind = made[name]
        sample = chance.choice(kind.samples)
        data = mutate(chance, sample, kind.structured)
        subject = chance.choice(_SUBJECT.findall(sample.decode("utf-8", "replace")) or ["team/job"])
        command = tuple(part.replace("{subject}", subject) for part in chance.choice(kind.commands))
        yield Case(number, name, kind.name, data, command, kind.environment)


def mutate(chance: random.Random, data: bytes, structured: Callable[[Any], bytes] | None) -> bytes:
    """A file with a few mutations: of its values, where it is a document, or of its bytes."""
    times = chance.choice((1, 1, 1, chance.randint(2, MOST_MUTATIONS)))
    if data.startswith(SQLITE) and chance.random() < 0.6:
        return with_odd_rows(chance, data, times)
    if structured is not None and chance.random() < 0.4:
        text = data.decode("utf-8", "replace")
        for _ in range(times):
            text = _with_odd_text(chance, text)
        return chance.choice(ENCODINGS)(text)
    if structured is not None and chance.random() < 0.7:
        document = _decoded(data, structured)
        for _ in range(times):
            document = _with_odd_value(chance, document)
        return structured(document)
    changed = bytearray(data)
    for _ in range(times):
        _damage(chance, changed)
    return bytes(changed)


def _with_odd_text(chance: random.Random, text: str) -> str:
    """A text with something that only its form allows: tags, anchors, keys that are no texts, nesting, separators."""
    lines = text.splitlines() or [""]
    at = chance.randrange(len(lines))
    line = lines[at]
    indent = line[: len(line) - len(line.lstrip())]
    key, colon, _ = line.partition(": ")
    match chance.randrange(8):
        case 0:
            lines[at] = f"{key}: {chance.choice(SCALARS)}"
        case 1 if colon:
            lines[at] = f"{indent}{chance.choice(KEYS)}: {line.partition(': ')[2]}"
        case 2:
            lines.insert(at, line)
        case 3:
            lines.insert(at, f"{indent}{chance.choice(LINES)}")
        case 4:
            lines[at] = f"{key}: {chance.choice(NESTED)}"
        case 5:
            lines.insert(0, chance.choice(BEGINNINGS))
        case 6:
            return chance.choice(SEPARATORS).join(lines)
        case _:
            place = chance.randrange(len(line) + 1)
            lines[at] = line[:place] + chance.choice(CHARACTERS) + line[place:]
    return "\n".join(lines) + "\n"


def with_odd_rows(chance: random.Random, data: bytes, times: int) -> bytes:
    """A history in which values, columns or tables are not what they were."""
    with tempfile.TemporaryDirectory(prefix="gpuconsole-fuzz-") as folder:
        file = Path(folder) / "h.db"
        file.write_bytes(data)
        connection = sqlite3.connect(file, isolation_level=None)
        tables = [
            name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
        ]
        for _ in range(times):
            table = chance.choice(tables)
            columns = [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')] or ["rowid"]
            column = chance.choice(columns)
            with suppress(sqlite3.Error):
                match chance.randrange(8):
                    case 0:
                        connection.execute(f'DROP TABLE "{table}"')
                    case 1:
                        connection.execute(f'ALTER TABLE "{table}" DROP COLUMN "{column}"')
                    case 2:
                        connection.execute(f'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO "other"')
                    case 3:
                        connection.execute(f"PRAGMA user_version = {chance.choice((0, 1, 2**31 - 1, -1))}")
                    case 4:
                        connection.execute(f'DELETE FROM "{table}"')
                    case _:
                        connection.execute(f'UPDATE "{table}" SET "{column}" = ?', (chance.choice(CELLS),))
        connection.close()
        return file.read_bytes()


def _decoded(data: bytes, structured: Callable[[Any], bytes]) -> Any:
    if structured is as_json:
        return json.loads(data)
    # By way of JSON aliases become copies, or one mutation would change several places.
    return _Documents(json.loads(json.dumps(list(yaml.safe_load_all(data)), default=str)))


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in entries:
        yield from _paths(child, (*path, key))


def _with_odd_value(chance: random.Random, document: Any) -> Any:
    paths = list(_paths(document))
    if not paths:
        return deepcopy(chance.choice(ODD))
    path = chance.choice(paths)
    place = document
    for key in path[:-1]:
        place = place[key]
    match chance.randrange(9):
        case 0:
            del place[path[-1]]
        case 1 if isinstance(place, dict):
            place[f"{path[-1]}x"] = place.pop(path[-1])
        case 2 if isinstance(place, list):
            place.append(deepcopy(place[path[-1]]))
        case 3:
            other = document
            for key in chance.choice(paths):
                other = other[key]
            place[path[-1]] = deepcopy(other)
        case 4 | 5 | 6:
            place[path[-1]] = _near(chance, place[path[-1]], document)
        case _:
            place[path[-1]] = deepcopy(chance.choice(ODD))
    return document


def _near(chance: random.Random, value: Any, document: Any) -> Any:
    """Another value that could stand there, too."""
    match value:
        case bool():
            return not value
        case int() | float():
            return chance.choice((0, 1, -value, value + 1, value - 1, value * 2, value * 1000, value / 2, str(value)))
        case str():
            texts = sorted({text for text in _leaves(document) if isinstance(text, str)})
            return chance.choice([*texts, "", f"{value}x", value[:-1], value.upper(), value * 20])
        case list():
            return chance.choice((value[1:], value * 2, value[::-1], []))
        case _:
            return deepcopy(chance.choice(ODD))


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _leaves(inner)
    else:
        yield value


def _damage(chance: random.Random, data: bytearray) -> None:
    at = chance.randrange(len(data) + 1)
    end = min(len(data), at + chance.choice((1, 3, 20, 200)))
    match chance.randrange(7):
        case 0:
            del data[at:end]
        case 1:
            data[at:at] = chance.choice(TOKENS)
        case 2 if data:
            data[min(at, len(data) - 1)] = chance.randrange(256)
        case 3:
            del data[at:]
        case 4:
            data[at:at] = data[at:end]
        case 5:
            lines = data.splitlines(keepends=True)
            if len(lines) > 1:
                del lines[chance.randrange(len(lines))]
                data[:] = b"".join(lines)
        case _:
            data[at:end] = chance.choice(TOKENS) * chance.choice((1, 1, 1, 50))


def run(command: Command) -> tuple[int, str, str, float]:
    """Run one command in this process: its status, what it printed, what it said on stderr, and the seconds it took."""
    if not command:
        raise ValueError("there is no command")
    begun = time.perf_counter()
    with patch.object(sys, "argv", ["gpuconsole", *command]), CliRunner().isolation() as streams:
        status = _status()
        out, error = streams[0].getvalue(), streams[1].getvalue()
    took = time.perf_counter() - begun
    return status, out.decode("utf-8", "replace"), error.decode("utf-8", "replace"), took


@contextmanager
def limited(seconds: int) -> Iterator[None]:
    """Raise TooLongError where what is done takes longer."""

    def ring(number: int, frame: FrameType | None) -> None:
        raise TooLongError

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def problem_with(case: Case, folder: Path) -> str:
    """What is wrong with how the input was taken; nothing where it was taken well."""
    file = folder / case.name
    file.write_bytes(case.data)
    _put_beside(folder)
    filled = tuple(part.format(file=file, folder=folder) for part in case.command)
    environment = {"GPUCONSOLE_STATE_DIR": str(folder / "state"), "XDG_CONFIG_HOME": str(folder / "none")}
    environment |= {name: value.format(file=file, folder=folder) for name, value in case.environment.items()}
    try:
        with limited(PATIENCE), patch.dict(os.environ, environment):
            if not filled:
                return _theme_problem(folder)
            status, out, error, _ = run(filled)
    except TooLongError:
        return f"did not end within {PATIENCE} s"
    except BaseException:
        return traceback.format_exc()
    if status not in (0, 1, 2):
        return f"status {status}"
    if status == 2 and not error.strip():
        return "status 2 without a word on stderr"
    if "Traceback (most recent" in out + error:
        return out + error
    return ""


def _theme_problem(folder: Path) -> str:
    with suppress(ThemeError):
        load_themes(folder / "only-theme")
    return ""


def _put_beside(folder: Path) -> None:
    (folder / "job.yaml").write_text(JOB)
    (folder / "pool.yaml").write_text(_POOL)
    texts = {
        "with-volcano.yaml": ("Volcano", "volcano-scheduler.conf", "volcano"),
        "with-kai.yaml": ("KAI", "kai.yaml", "kai-scheduler"),
    }
    for name, (engine, conf, scheduler) in texts.items():
        if (folder / conf).exists():
            (folder / name).write_text(_ENGINE.format(engine=engine, conf=conf, scheduler=scheduler))
    if (folder / "theme.yaml").exists():
        (folder / "only-theme").mkdir()
        (folder / "only-theme" / "theme.yaml").write_bytes((folder / "theme.yaml").read_bytes())


def find_problems(seed: int, count: int, only: str = "", kept: Path | None = None) -> Iterator[tuple[Case, str]]:
    """Run `count` inputs; tells each with which something is wrong. Their files are put into `kept`."""
    with tempfile.TemporaryDirectory(prefix="gpuconsole-fuzz-") as name:
        scratch = Path(name)
        with patch.dict(os.environ, {"GPUCONSOLE_STATE_DIR": str(scratch / "state")}):
            made = kinds(scratch)
        for case in cases(seed, count, made):
            if only and case.kind != only:
                continue
            folder = scratch / str(case.number)
            folder.mkdir()
            problem = problem_with(case, folder)
            if problem:
                if kept is not None:
                    place = kept / str(case.number)
                    place.mkdir(parents=True, exist_ok=True)
                    (place / case.name).write_bytes(case.data)
                yield case, problem
            for path in sorted(folder.rglob("*"), reverse=True):
                path.rmdir() if path.is_dir() else path.unlink()
            folder.rmdir()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=2_000)
    parser.add_argument("--only", default="", help="one kind of file")
    parser.add_argument("--keep", type=Path, help="put the inputs that fail into this folder")
    options = parser.parse_args()
    begun, failed = time.perf_counter(), 0
    for case, problem in find_problems(options.seed, options.count, options.only, options.keep):
        failed += 1
        print(f"== {options.seed}/{case.number} {case.kind}: {' '.join(case.command)}\n{problem}", flush=True)
    print(f"{options.count} inputs of seed {options.seed}: {failed} failed, {time.perf_counter() - begun:.0f} s")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
