"""Answers on a cluster that others run say what they assume of the queues that Kueue keeps in memory."""

import json
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from gpuconsole.model.clock import SECOND
from gpuconsole.model.snapshot import encode
from gpuconsole.model.workloads import Condition, Workload
from tests.insight.test_inadmissible import LONG, LOW, OTHER, POLICY, QUEUES, REFUSED, finished
from tests.support.command_line import Line
from tests.support.snapshots import START, node, world

JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: new, namespace: prod, labels: {kueue.x-k8s.io/queue-name: other}}
spec:
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: example.com/work:1, resources: {limits: {nvidia.com/gpu: "8"}}}]
"""
SINCE = "in its cohort tree has changed since Kueue refused it"
INADMISSIBLE = f"1 workload is assumed to be inadmissible: nothing {SINCE}"
TRIED_AGAIN = f"1 workload is assumed to be requeued: something {SINCE}"
QUESTIONS = {
    "forecast": ("forecast",),
    "whatif": ("whatif", "-f", "job.yaml", "--horizon", "5m"),
    "plan": ("plan", "-f", "job.yaml", "--horizon", "5m"),
    "eta": ("eta", "prod/refused", "--runs", "2", "--horizon", "1h"),
    "risk": ("risk", "--runs", "1", "--horizon", "10m"),
}


def saved(folder: Path, *workloads: Workload) -> Path:
    """A cluster that others run, with some workloads, in a file; its Kueue schedules."""
    file = folder / "cluster.json"
    objects = [*QUEUES, node("n1"), node("n2"), node("n3"), LONG, REFUSED, *workloads]
    file.write_bytes(encode(world(objects), msgspec.Raw(msgspec.json.encode(POLICY))))
    (folder / "job.yaml").write_text(JOB)
    return file


def low(seconds_ago: int) -> Workload:
    return replace(LOW, conditions=(Condition("QuotaReserved", True, "", "", START - seconds_ago * SECOND),))


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize(
    ("freed", "assumed", "not_assumed"),
    [(60, INADMISSIBLE, TRIED_AGAIN), (5, TRIED_AGAIN, INADMISSIBLE)],
    ids=["nothing changed since Kueue scheduled", "quota was freed since"],
)
def test_text_and_document_say_who_is_assumed_to_be_inadmissible(
    gpuconsole: Line,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    question: str,
    freed: int,
    assumed: str,
    not_assumed: str,
) -> None:
    file = saved(tmp_path, low(10), finished(OTHER, START - freed * SECOND))
    monkeypatch.chdir(tmp_path)
    command: tuple[str | Path, ...] = (*QUESTIONS[question], "--snapshot", file)
    text, document = gpuconsole(*command), gpuconsole(*command, "-o", "json").out
    printed = f"{text.out}\n{text.err}"
    taken = json.loads(document)
    told = [*taken["assumed"], *(taken["answer"].get("assumptions", ()) if isinstance(taken["answer"], dict) else ())]
    assert (assumed in printed, assumed in told) == (True, True), (printed, told)
    assert (not_assumed in printed, not_assumed in told) == (False, False)
