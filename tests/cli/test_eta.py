"""`gpuconsole eta`: position and expected start, for people and for programs."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpuconsole.cli.answering import QuestionContext, agreement_body, agreement_lines
from gpuconsole.cli.eta import as_recorded
from gpuconsole.config import Config
from gpuconsole.errors import HistoryError
from gpuconsole.insight.data_gaps import latency_assumption
from gpuconsole.insight.forecast.agreement import NO_COMPARISON, AgreementCounts, AgreementRecord
from gpuconsole.insight.forecast.estimates import ENOUGH, CoverageRecord
from gpuconsole.insight.forecast.expected_start import expected_start
from gpuconsole.model.clock import HOUR
from gpuconsole.model.objects import Object
from gpuconsole.model.queues import Cohort, LocalQueue, Quota
from gpuconsole.model.snapshot import encode
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import SimPolicy
from gpuconsole.sim.run_times import DEFAULT_LATENCIES
from tests.services.test_estimates import MANY, SNAPSHOT, recorder_at
from tests.support.command_line import Line
from tests.support.snapshots import A100, cluster_queue, waiting, world

CLUSTER = """
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
      flavors: [{name: a100, resources: [{name: nvidia.com/gpu, nominalQuota: 4}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: lq, namespace: team}
spec: {clusterQueue: cq}
"""
WORKLOAD = """
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata: {name: NAME, namespace: team, creationTimestamp: "2026-01-05T07:00:0Nz"}
spec:
  queueName: lq
  podSets:
    - name: main
      count: 1
      template:
        spec: {restartPolicy: Never, containers: [{name: c, image: i, resources: {requests: {nvidia.com/gpu: 4}}}]}
"""

TOO_MUCH = "never requests 8 GPUs; the maximum capacity of cq is 4 GPUs of a100."


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.yaml"
    jobs = (WORKLOAD.replace("NAME", name).replace("0Nz", f"0{n}Z") for n, name in enumerate(("first", "second")))
    path.write_text(CLUSTER + "".join(jobs))
    return path


def test_eta_for_people(gpuconsole: Line, cluster: Path) -> None:
    told = gpuconsole("eta", "second", cluster, "--runs", "3")
    assert told.lines[:3] == [
        "team/second  4 GPUs  pending  in cq",
        "  position 1 of 1 in its LocalQueue",
        "  position 1 of 1 in ClusterQueue cq",
    ]
    assert told.lines[4].startswith("  starts 2026-01-05T08:")
    assert told.lines[-8:] == [
        "  run times of cluster: 0 samples",
        "ASSUMPTIONS",
        "  no workload has finished yet: run times are about an hour, or twice the time run so far",
        "  arrivals repeat those of the last 1h (1 workload)",
        "  quotas, nodes and priorities do not change",
        f"  {latency_assumption(DEFAULT_LATENCIES)}",
        "  only 1h of history: with less than 4d, estimates tend to be far too early",
        "  uncalibrated: not enough past estimates; the interval is 3.0 times as wide as in the runs",
    ]


def test_eta_for_programs(gpuconsole: Line, cluster: Path) -> None:
    document = json.loads(gpuconsole("eta", "team/second", cluster, "--runs", "3", "-o", "json").out)
    answer = document["answer"]
    assert (document["kind"], document["version"], answer["workload"], answer["phase"]) == (
        "Eta",
        3,
        "team/second",
        "pending",
    )
    assert answer["position"] == {
        "workload": "team/second",
        "cluster_queue": "cq",
        "in_cluster_queue": 1,
        "of_cluster_queue": 1,
        "in_local_queue": 1,
        "of_local_queue": 1,
        "gpus_ahead": 0,
        "unit": "GPU",
    }
    estimate = answer["estimate"]
    assert estimate["early"] <= estimate["median"] <= estimate["late"]
    assert (estimate["runs"], estimate["runs_beyond_horizon"], answer["cohort"]) == (3, 0, None)
    assert (estimate["calibrated_by"], estimate["earlier"]) == (0, {"judged": 0, "covered": 0})
    assert estimate["uncalibrated"]["late"] < estimate["late"]


def test_the_same_chance_gives_the_same_answer(gpuconsole: Line, cluster: Path) -> None:
    one, same, other = (
        gpuconsole("eta", "second", cluster, "--runs", "2", "--chance", chance).out for chance in ("1", "1", "2")
    )
    assert one == same != other


def test_where_cohorts_lead_in_a_circle_its_place_there_is_not_known(gpuconsole: Line, tmp_path: Path) -> None:
    """A file says so before anything runs; a cluster, and what is saved of it, holds such cohorts all the same."""
    things: tuple[Object, ...] = (
        *(Cohort(name=name, parent=above) for name, above in (("red", "blue"), ("blue", "red"))),
        A100,
        cluster_queue("cq", "red", Quota(4)),
        LocalQueue(namespace="team", name="lq", cluster_queue="cq"),
        waiting("one", "team/lq", 4),
    )
    file = tmp_path / "ring.json"
    file.write_bytes(encode(world(things)))
    document = json.loads(gpuconsole("eta", "one", "--snapshot", file, "--runs", "1", "-o", "json").out)
    assert (document["answer"]["cohort"], document["unknown"]) == (
        None,
        [
            "position in its cohort: cohort red is its own ancestor, or below one that is: nothing in it is admitted",
        ],
    )


def test_what_runs_is_not_foretold(gpuconsole: Line, cluster: Path) -> None:
    assert gpuconsole("eta", "first", cluster).lines == [
        "team/first  4 GPUs  running  in cq",
        "  not pending",
    ]


def test_a_job_of_volcano_has_no_position_and_a_range_of_when_its_pods_have_nodes(gpuconsole: Line) -> None:
    """Both jobs share the nodes: the one gets the rest of its pods when the other ends, within two hours."""
    asked = ("eta", "product", "proportion-volcano", "--until", "20m", "--runs", "4")
    lines = gpuconsole(*asked).lines
    assert (lines[0], lines[1], lines[2].split()[0]) == (
        "VolcanoJob/default/product  8 GPUs  pending  in product",
        "",
        "starts",
    )
    answer = json.loads(gpuconsole(*asked, "-o", "json").out)["answer"]
    assert (answer["position"], answer["cohort"], answer["goes_by"]["group"]) == (None, None, "cluster")
    assert answer["estimate"]["runs_beyond_horizon"] == 0
    assert "2026-01-05T08:20:00Z" < answer["estimate"]["median"] < "2026-01-05T10:20:00Z"


IN_PART = """
apiVersion: v1
kind: Node
metadata: {name: n1}
status:
  allocatable: &all {cpu: "64", memory: 256Gi, pods: "110", nvidia.com/gpu: "4"}
  capacity: *all
  conditions: [{type: Ready, status: "True"}]
---
apiVersion: batch/v1
kind: Job
metadata: {name: other, namespace: t}
spec:
  template:
    spec: {restartPolicy: Never, containers: [{name: m, image: x, resources: {limits: {nvidia.com/gpu: "2"}}}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: serves, namespace: t}
spec:
  replicas: 3
  selector: {matchLabels: {a: b}}
  template:
    metadata: {labels: {a: b}}
    spec: {containers: [{name: m, image: x, resources: {limits: {nvidia.com/gpu: "1"}}}]}
"""


QUEUED_IN_PART = """
name: part
objects:
  - {apiVersion: kueue.x-k8s.io/v1beta2, kind: ResourceFlavor, metadata: {name: a}}
  - apiVersion: kueue.x-k8s.io/v1beta2
    kind: ClusterQueue
    metadata: {name: a}
    spec:
      namespaceSelector: {}
      resourceGroups:
        - coveredResources: [nvidia.com/gpu]
          flavors: [{name: a, resources: [{name: nvidia.com/gpu, nominalQuota: 24}]}]
  - apiVersion: kueue.x-k8s.io/v1beta2
    kind: LocalQueue
    metadata: {name: main, namespace: a}
    spec: {clusterQueue: a}
  - {apiVersion: v1, kind: Node, metadata: {name: n1}, status: {allocatable: {pods: "9", nvidia.com/gpu: "8"}}}
  - {apiVersion: v1, kind: Node, metadata: {name: n2}, status: {allocatable: {pods: "9", nvidia.com/gpu: "8"}}}
steps:
  - create:
      - apiVersion: batch/v1
        kind: Job
        metadata: &meta {name: first, namespace: a, labels: {kueue.x-k8s.io/queue-name: main}}
        spec:
          template: &pod
            spec: {restartPolicy: Never, containers: [{name: m, image: i, resources: {limits: {nvidia.com/gpu: 8}}}]}
  - advanceSeconds: 60
    create:
      - apiVersion: batch/v1
        kind: Job
        metadata: {<<: *meta, name: two}
        spec: {parallelism: 2, completions: 2, template: *pod}
"""


def test_a_workload_that_runs_in_part_is_foretold_for_when_its_other_pods_have_nodes(
    gpuconsole: Line, tmp_path: Path
) -> None:
    """Quota for three pods, nodes for two: the second pod gets the node of the job beside it when that ends."""
    cluster = tmp_path / "part.yaml"
    cluster.write_text(QUEUED_IN_PART)
    answer = json.loads(gpuconsole("eta", "a/two", cluster, "--until", "10m", "--runs", "4", "-o", "json").out)[
        "answer"
    ]
    assert (answer["phase"], answer["estimate"]["runs_beyond_horizon"]) == ("admitted", 0)
    assert "2026-01-05T08:35:00Z" < answer["estimate"]["median"] < "2026-01-05T10:30:00Z"


def test_what_runs_in_part_is_foretold_for_when_its_other_pods_have_nodes(gpuconsole: Line, tmp_path: Path) -> None:
    """Two of the three pods run; the third gets a node when the job beside them ends, after an hour or so."""
    cluster = tmp_path / "part.yaml"
    cluster.write_text(IN_PART)
    answer = json.loads(gpuconsole("eta", "serves", cluster, "--until", "5m", "--runs", "4", "-o", "json").out)[
        "answer"
    ]
    assert (answer["workload"], answer["phase"]) == ("Deployment/t/serves", "pending")
    assert answer["estimate"]["runs_beyond_horizon"] == 0
    assert "2026-01-05T08:35:00Z" < answer["estimate"]["median"] < "2026-01-05T10:10:00Z"


def test_a_lone_pod_that_runs_is_not_foretold(gpuconsole: Line) -> None:
    assert gpuconsole("eta", "training", "fractions-kai", "--until", "20m").lines == [
        "default/training  2 GPUs  running  in team",
        "  not pending",
    ]


def test_a_workload_that_is_not_there(gpuconsole: Line, cluster: Path) -> None:
    told = gpuconsole("eta", "nobody", cluster)
    assert (told.status, told.err) == (2, "gpuconsole: there is no workload, job or pod nobody\n")


def test_what_no_run_saw_start_has_no_range_but_the_reason_why_it_waits(gpuconsole: Line, cluster: Path) -> None:
    cluster.write_text(
        cluster.read_text() + WORKLOAD.replace("NAME", "never").replace("0Nz", "05Z").replace("4}", "8}")
    )
    told = gpuconsole("eta", "never", cluster, "--runs", "3", "--horizon", "6h")
    assert told.lines[3:6] == [
        "",
        "  no start before 2026-01-05T14:00:00Z (in 6h) in any of 3 runs: no estimate",
        f"  exceeds-max: {TOO_MUCH}",
    ]
    answer = json.loads(gpuconsole("eta", "never", cluster, "--runs", "3", "--horizon", "6h", "-o", "json").out)[
        "answer"
    ]
    found = answer["estimate"]
    assert [found[key] for key in ("early", "median", "late", "uncalibrated", "runs_beyond_horizon")] == [
        None,
        None,
        None,
        None,
        3,
    ]
    assert found["waits_because"] == {"code": "exceeds-max", "headline": TOO_MUCH}
    assert not any("horizon" in text for text in answer["assumptions"]), (
        "without a range nothing is assumed of its tail"
    )


def test_an_answer_about_a_live_cluster_says_how_often_the_engine_agreed_with_its_kueue(tmp_path: Path) -> None:
    snapshot = SNAPSHOT.freeze()
    simulation = Simulation.from_snapshot(snapshot, policy=SimPolicy(kueue=None), seed=0)
    settings = Config(state_dir=str(tmp_path))
    asked = QuestionContext(simulation=simulation, source="prod", mode="live", settings=settings, found=snapshot)
    path = settings.live_history_file("prod")
    assert asked.agreement == NO_COMPARISON
    recorder = recorder_at(path, "prod")
    recorder.add_agreement(AgreementRecord(hours={simulation.now // HOUR: AgreementCounts(1206, 1204)}))
    recorder.close()
    assert asked.agreement == AgreementCounts(1206, 1204)
    sentence = "The engine agreed with Kueue in 1,204 of 1,206 decisions of the last 24 h on this cluster."
    assert agreement_lines(asked.agreement) == ["", sentence]
    assert agreement_body(asked.agreement) == {
        "kueue_agreement": {"decisions": 1206, "agreed": 1204, "unknown": 0, "text": sentence}
    }
    path.write_text("this is no database")
    for other in (replace(asked, mode="saved"), asked):
        assert agreement_lines(other.agreement) == []
        assert agreement_body(other.agreement) == {}


def test_what_the_console_recorded_of_a_live_cluster_corrects_the_answer_there(tmp_path: Path) -> None:
    snapshot = SNAPSHOT.freeze()
    simulation = Simulation.from_snapshot(snapshot, policy=SimPolicy(kueue=None), seed=0)
    settings = Config(state_dir=str(tmp_path))
    asked = QuestionContext(simulation=simulation, source="prod", mode="live", settings=settings, found=snapshot)
    found = expected_start(simulation, "a/second", runs=2)
    assert found.start is not None
    assert as_recorded(asked, found) == found, "nobody watched it before"
    recorder = recorder_at(settings.history_file, "prod")
    recorder.add_estimates(MANY)
    recorder.close()
    told = as_recorded(asked, found)
    assert told.start is not None
    assert told.record == CoverageRecord(judged=ENOUGH, covered=ENOUGH)
    assert told.start.calibrated_by == ENOUGH
    assert told.start.interval != found.start.interval
    for other in (replace(asked, source="staging"), replace(asked, mode="saved")):
        assert as_recorded(other, found) == found
    settings.history_file.write_text("this is no database")
    with pytest.raises(HistoryError, match=r"history\.db"):
        as_recorded(asked, found)
