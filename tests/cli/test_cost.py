"""`gpuconsole cost`: the seeds' examples, all groupings and formats, recorded and present costs, budgets."""

import csv
import io
import json
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuconsole.insight.cost.allocation import CostHour, CostKind, CostOwner
from gpuconsole.insight.cost.focus import COLUMNS
from gpuconsole.insight.cost.report import CostBy
from gpuconsole.model.clock import HOUR, parse_time
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.store.recorder import Opening, Recorder
from tests.support.command_line import Line

QUEUES = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: gpus}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: cq}
spec:
  namespaceSelector: {}
  resourceGroups:
    - coveredResources: [nvidia.com/gpu]
      flavors: [{name: gpus, resources: [{name: nvidia.com/gpu, nominalQuota: 64}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: lq, namespace: llm}
spec: {clusterQueue: cq}
"""


def node(name: str, accelerator: str, labels: Mapping[str, str] = {}) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"accelerator": accelerator, **labels}},
        "status": {"allocatable": {"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": "8", "pods": "110"}},
    }


def job(name: str, gpus: int, hours: str, pods: int = 1, annotations: Mapping[str, str] = {}) -> dict[str, Any]:
    container = {"name": "main", "image": "example.com/work:1", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": "llm",
            "labels": {"kueue.x-k8s.io/queue-name": "lq", "team": "research", "project": "chat", "user": "ada"},
            "annotations": {"gpuconsole.io/duration": hours, **annotations},
        },
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
        },
    }


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """Eight A100-80GB, on which a job runs for two hours."""
    return written(tmp_path, node("n1", "nvidia-a100-80gb"), job("train", 8, "2h"))


def written(folder: Path, *documents: dict[str, Any]) -> Path:
    file = folder / "cluster.yaml"
    file.write_text("\n---\n".join([QUEUES, *map(yaml.safe_dump, documents)]))
    return file


def of(gpuconsole: Line, *words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(gpuconsole("cost", *words, "-o", "json").out)
    return found


def test_eight_a100_for_two_hours_cost_35_36(gpuconsole: Line, cluster: Path) -> None:
    found = of(gpuconsole, str(cluster), "--until", "3h", "--by", "workload")
    (item,) = found["items"]
    assert found == {
        "kind": "Cost",
        "version": 1,
        "source": "cluster.yaml",
        "mode": "simulated",
        "time": "2026-01-05T11:00:00Z",
        "age_seconds": None,
        "assumed": [],
        "unknown": [],
        "by": "workload",
        "per_hour": False,
        "window": {"since": "2026-01-05T08:00:00Z", "until": "2026-01-05T11:00:00Z"},
        "items": [
            {
                "name": "llm/train",
                "gpu_hours": 16.0,
                "cost_usd": 35.36,
                "used_usd": 35.36,
                "underutilized_usd": 0.0,
                "lost_usd": 0.0,
                "saved_usd": 0.0,
                "borrowed_usd": None,
                "utilization": None,
                "workload": item["workload"],
                "cost_per_epoch": None,
            }
        ],
        "total_cost_usd": 53.04,
        "idle_cost_usd": 17.68,
        "system_cost_usd": 0.0,
        "idle_gpu_hours": 8.0,
        "saved_usd": 0.0,
        "borrowed_usd": None,
        "lent_usd": None,
        "budgets": [],
        "notes": [],
    }
    assert item["workload"].startswith("llm/job-train-")


@pytest.mark.parametrize(("pods", "usd"), [(1, 16.00), (8, 128.00)])
def test_other_gpus_cost_2_usd_an_hour(gpuconsole: Line, tmp_path: Path, pods: int, usd: float) -> None:
    nodes = [node(f"n{number}", "nvidia-a10") for number in range(pods)]
    file = written(tmp_path, *nodes, job("train", 8, "1h", pods))
    (item,) = of(gpuconsole, str(file), "--until", "2h", "--by", "workload")["items"]
    assert (item["gpu_hours"], item["cost_usd"]) == (8.0 * pods, usd)


def test_nodes_of_the_five_gpu_types_cost_83_36_an_hour(gpuconsole: Line, tmp_path: Path) -> None:
    kinds = ("nvidia-a100-80gb", "nvidia-a100-40gb", "nvidia-h100-80gb", "nvidia-l4", "nvidia-a10")
    file = written(tmp_path, *(node(kind, kind) for kind in kinds))
    found = of(gpuconsole, str(file), "--until", "1h", "--by", "gpu-type")
    assert (found["items"], found["idle_cost_usd"], found["total_cost_usd"]) == ([], 83.36, 83.36)


def test_a_spot_gpu_costs_its_part_and_says_what_it_saves(gpuconsole: Line, tmp_path: Path) -> None:
    file = written(
        tmp_path, node("n1", "nvidia-a100-80gb", {"karpenter.sh/capacity-type": "spot"}), job("train", 8, "1h")
    )
    (item,) = of(gpuconsole, str(file), "--until", "1h")["items"]
    assert (item["cost_usd"], item["saved_usd"]) == (6.19, 11.49)


def test_the_cost_of_an_epoch(gpuconsole: Line, tmp_path: Path) -> None:
    file = written(
        tmp_path,
        node("n1", "nvidia-a100-80gb"),
        job("train", 8, "2h", annotations={"gpuconsole.io/epochs-completed": "4"}),
    )
    (item,) = of(gpuconsole, str(file), "--until", "3h", "--by", "workload")["items"]
    assert item["cost_per_epoch"] == 8.84


@pytest.mark.parametrize(
    ("by", "name"),
    [
        ("workload", "llm/train"),
        ("team", "research"),
        ("project", "chat"),
        ("queue", "cq"),
        ("namespace", "llm"),
        ("user", "ada"),
        ("gpu-type", "a100-80gb"),
    ],
)
def test_each_grouping_names_its_items(gpuconsole: Line, cluster: Path, by: str, name: str) -> None:
    assert [item["name"] for item in of(gpuconsole, str(cluster), "--until", "1h", "--by", by)["items"]] == [name]


@pytest.mark.parametrize("by", list(CostBy))
def test_items_idle_and_system_are_the_total_to_the_cent(gpuconsole: Line, by: CostBy) -> None:
    found = of(gpuconsole, "default", "--until", "2h", "--by", by)
    parts = sum(item["cost_usd"] for item in found["items"]) + found["idle_cost_usd"] + found["system_cost_usd"]
    assert round(parts, 2) == found["total_cost_usd"]
    for item in found["items"]:
        assert round(item["used_usd"] + item["underutilized_usd"] + item["lost_usd"], 2) == item["cost_usd"]


def test_the_report_as_text(gpuconsole: Line, cluster: Path) -> None:
    assert gpuconsole("cost", str(cluster), "--until", "3h").lines == [
        "Cost by team, from 2026-01-05T08:00:00Z to 2026-01-05T11:00:00Z",
        "",
        "TEAM      GPU-HOURS     USD    USED  UNDERUTILIZED   LOST  SPOT SAVES  UTILIZATION",
        "research      16.00  $35.36  $35.36          $0.00  $0.00       $0.00            –",
        "",
        "idle    $17.68",
        "system   $0.00",
        "total   $53.04",
    ]


def test_the_report_as_csv_adds_up_to_the_total(gpuconsole: Line, cluster: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(gpuconsole("cost", str(cluster), "--until", "3h", "-o", "csv").out)))
    assert [(row["name"], row["gpu_hours"], row["cost_usd"]) for row in rows] == [
        ("research", "16.0000", "35.36"),
        ("(idle)", "8.0000", "17.68"),
        ("(system)", "", "0.00"),
    ]


def test_the_report_as_markdown(gpuconsole: Line, cluster: Path) -> None:
    lines = gpuconsole("cost", str(cluster), "--until", "3h", "--by", "user", "-o", "markdown").lines
    assert lines == [
        "# Cost by user, from 2026-01-05T08:00:00Z to 2026-01-05T11:00:00Z",
        "",
        "| USER | GPU-HOURS | USD | USED | UNDERUTILIZED | LOST | SPOT SAVES | UTILIZATION |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        "| ada | 16.00 | $35.36 | $35.36 | $0.00 | $0.00 | $0.00 | – |",
        "",
        "- idle: $17.68",
        "- system: $0.00",
        "- total: $53.04",
    ]


class Tags(HTMLParser):
    """Collects the tags of a page, and which attributes load something."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.loads += [name for name, _ in attrs if name in ("src", "href")]
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_report_as_html_loads_nothing_and_closes_its_tags(gpuconsole: Line, cluster: Path) -> None:
    page = gpuconsole("cost", str(cluster), "--until", "3h", "-o", "html").out
    tags = Tags()
    tags.feed(page)
    assert (tags.open, tags.loads, "script" in tags.tags) == ([], [], False)
    assert "<td>research</td><td>16.00</td><td>$35.36</td>" in page


def test_the_report_as_focus(gpuconsole: Line, cluster: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(gpuconsole("cost", str(cluster), "--until", "3h", "-o", "focus").out)))
    assert set(COLUMNS) <= set(rows[0])
    assert sum(float(row["BilledCost"]) for row in rows) == pytest.approx(53.04)
    assert {row["ResourceType"] for row in rows} == {"Workload", "Idle GPUs"}


def test_since_limits_the_report_to_whole_hours_before_the_end(gpuconsole: Line, cluster: Path) -> None:
    found = of(gpuconsole, str(cluster), "--until", "3h", "--since", "90m")
    assert found["window"] == {"since": "2026-01-05T09:00:00Z", "until": "2026-01-05T11:00:00Z"}
    assert (found["items"][0]["cost_usd"], found["total_cost_usd"]) == (17.68, 35.36)
    same = of(gpuconsole, str(cluster), "--until", "3h", "--since", "2026-01-05T09:20Z")
    assert same == found


def test_the_monthly_report_has_the_keys_of_the_seed(gpuconsole: Line, cluster: Path) -> None:
    found = of(gpuconsole, str(cluster), "--until", "3h", "--team", "research", "--month", "2026-01")
    keys = ("team", "month", "total_gpu_hours", "total_cost_usd", "jobs_count", "gpu_utilization_avg")
    assert [found[key] for key in keys] == ["research", "2026-01", 16.0, 35.36, 1, None]
    assert found["top_5_costly_jobs"] == [
        {"job_name": "llm/train", "gpu_hours": 16.0, "cost_usd": 35.36, "gpu_util": None}
    ]


def test_the_monthly_report_as_text(gpuconsole: Line, cluster: Path) -> None:
    assert gpuconsole("cost", str(cluster), "--until", "3h", "--team", "research").lines == [
        "Team research, 2026-01",
        "",
        "JOB        GPU-HOURS     USD  UTILIZATION",
        "llm/train      16.00  $35.36            –",
        "",
        "GPU-hours                   16.00",
        "jobs                            1",
        "mean utilization of jobs  unknown",
        "total                      $35.36",
    ]


def test_a_team_without_cost_may_be_misspelled_so_the_others_are_named(gpuconsole: Line, cluster: Path) -> None:
    words = (str(cluster), "--until", "3h", "--team", "reserch")
    done = gpuconsole("cost", *words)
    assert (done.status, done.lines[-1]) == (0, "Team reserch has no cost; teams with cost: research.")
    assert of(gpuconsole, *words)["notes"] == ["Team reserch has no cost; teams with cost: research."]


def test_a_budget_that_will_not_suffice_is_an_alert_and_exit_status_1(gpuconsole: Line, cluster: Path) -> None:
    words = (str(cluster), "--until", "3h", "--budget", "research=30", "--budget", "speech=100")
    done = gpuconsole("cost", *words)
    assert done.status == 1
    assert done.lines[-2].startswith(
        "ALERT: team research: $35.36 of $30.00 spent this month: the budget is exceeded; "
    )
    assert done.lines[-1] == "team speech: $0.00 of $100.00 spent this month; forecast for the month's end $0.00"
    found = of(gpuconsole, *words)
    assert [(one["team"], one["spent_usd"], one["alert"]) for one in found["budgets"]] == [
        ("research", 35.36, True),
        ("speech", 0.0, False),
    ]


def test_a_saved_cluster_has_present_rates_only(gpuconsole: Line, cluster: Path, tmp_path: Path) -> None:
    saved = tmp_path / "saved.json"
    gpuconsole("snapshot", "save", str(saved), str(cluster), "--until", "1h")
    lines = gpuconsole("cost", "--snapshot", str(saved)).lines
    assert lines[0] == "Cost by team, per hour at 2026-01-05T09:00:00Z"
    assert lines[2:4] == [
        "TEAM      GPUS   USD/H    USED  UNDERUTILIZED   LOST  SPOT SAVES  UTILIZATION",
        "research  8.00  $17.68  $17.68          $0.00  $0.00       $0.00            –",
    ]
    assert lines[-1].startswith("Present rates. ")
    found = of(gpuconsole, "--snapshot", str(saved))
    assert (found["mode"], found["per_hour"], found["total_cost_usd"]) == ("saved", True, 17.68)
    later = of(gpuconsole, "--snapshot", str(saved), "--until", "1h")
    assert (later["mode"], later["per_hour"], later["total_cost_usd"]) == ("simulated", False, 17.68)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--month", "2026-13"), "--month '2026-13': write it as 2026-01"),
        (("--month", "2026-01", "--since", "1h"), "use only one of --month and --since"),
        (("default", "--until", "1m", "--since", "soon"), "--since 'soon': write it as 2026-01-05"),
        (("default", "--until", "1m", "--month", "2025-01"), "nothing is known of that time; the data are from"),
        (("--since", "24h"), "no cost has been recorded"),
        (("--team", "a", "-o", "csv"), "-o csv has no monthly report of a team"),
        (("--budget", "research"), "'research' is not TEAM=USD, such as research=12000"),
        (("--budget", "research=-1"), "'research=-1' is not TEAM=USD"),
    ],
)
def test_what_cannot_be_answered_is_said(gpuconsole: Line, words: tuple[str, ...], problem: str) -> None:
    done = gpuconsole("cost", *words)
    assert (done.status, done.out) == (2, "")
    assert problem in done.err


def test_present_rates_have_the_parts_on_borrowed_and_lent_quota(gpuconsole: Line, tmp_path: Path) -> None:
    saved = str(tmp_path / "saved.json")
    gpuconsole("snapshot", "save", saved, "org-cohort", "--until", "30m")
    found = of(gpuconsole, "--snapshot", saved, "--by", "queue")
    assert {item["name"]: (item["cost_usd"], item["borrowed_usd"]) for item in found["items"]} == {
        "cq-research": (26.52, 8.84),
        "cq-prod": (17.68, 0.0),
    }
    assert (found["borrowed_usd"], found["lent_usd"]) == (8.84, {"cq-prod": 8.84})
    result = gpuconsole("cost", "--snapshot", saved, "--by", "workload")
    (borrower,) = (line for line in result.lines if line.startswith("research/rlhf"))
    assert "  BORROWED  " in result.lines[2]
    assert borrower.split()[6] == "$8.84"
    assert "borrowed, of the total   $8.84" in result.lines
    assert "cq-prod lends quota for $8.84 per hour of this cost." in result.lines


RESEARCH = CostOwner(kind=CostKind.WORKLOAD, workload="llm/job-train-1f728", namespace="llm", team="research")
SPEECH = CostOwner(kind=CostKind.WORKLOAD, workload="asr/tune", namespace="asr", team="speech")
IDLE = CostOwner(kind=CostKind.IDLE, gpu_type="l4")


@pytest.fixture
def history(tmp_path: Path) -> Path:
    """A recording from 30 January to 2 February: research costs 2 USD an hour, speech 1 USD, idle GPUs 0.50 USD."""
    first, last = parse_time("2026-01-30T00:00:00Z"), parse_time("2026-02-02T06:00:00Z")
    file = tmp_path / "state" / "history.db"
    file.parent.mkdir()
    recorder = Recorder(file, Opening(version="test", mode="LIVE", source="prod"), wall=lambda: 0, interval=1e6)
    recorder.record(
        [HistoryEvent(time=time, what=HistoryEventKind.SUBMITTED, workload="a/b") for time in (first, last)]
    )
    for hour in range(first, last, HOUR):
        work = {"gpu_seconds": 3600.0, "busy_gpu_seconds": 900.0, "measured_gpu_seconds": 1800.0}
        recorder.add_costs(
            [
                CostHour(owner=RESEARCH, hour=hour, used_usd=1.5, lost_usd=0.5, **work),
                CostHour(owner=SPEECH, hour=hour, used_usd=1.0, **work),
                CostHour(owner=IDLE, hour=hour, idle_usd=0.5, gpu_seconds=1800.0),
            ]
        )
    recorder.close()
    return file


def test_a_month_of_the_recorded_history(gpuconsole: Line, history: Path) -> None:
    found = of(gpuconsole, "--month", "2026-01")
    assert found["window"] == {"since": "2026-01-30T00:00:00Z", "until": "2026-02-01T00:00:00Z"}
    assert (found["mode"], found["source"], found["time"]) == ("recorded", "prod", "2026-02-02T06:00:00Z")
    assert [(item["name"], item["gpu_hours"], item["cost_usd"], item["utilization"]) for item in found["items"]] == [
        ("research", 48.0, 96.0, 50.0),
        ("speech", 48.0, 48.0, 50.0),
    ]
    assert (found["idle_cost_usd"], found["total_cost_usd"]) == (24.0, 168.0)
    assert found["notes"] == ["The recording begins at 2026-01-30T00:00:00Z; the cost before it is not known."]
    again = of(gpuconsole, "--history", str(history), "--month", "2026-01")
    assert {**again, "age_seconds": 0} == {**found, "age_seconds": 0}


def test_the_whole_recording_and_its_last_hours(gpuconsole: Line, history: Path) -> None:
    whole = of(gpuconsole, "--history", str(history), "--by", "workload")
    assert [(item["name"], item["cost_usd"]) for item in whole["items"]] == [("llm/train", 156.0), ("asr/tune", 78.0)]
    assert of(gpuconsole, "--since", "6h")["total_cost_usd"] == 21.0


def test_the_monthly_report_of_a_recorded_team(gpuconsole: Line, history: Path) -> None:
    found = of(gpuconsole, "--month", "2026-01", "--team", "research")
    keys = ("team", "month", "total_gpu_hours", "total_cost_usd", "jobs_count", "gpu_utilization_avg")
    assert [found[key] for key in keys] == ["research", "2026-01", 48.0, 96.0, 1, 50.0]
    assert found["top_5_costly_jobs"] == [
        {"job_name": "llm/train", "gpu_hours": 48.0, "cost_usd": 96.0, "gpu_util": 50.0}
    ]


def test_the_budget_of_a_recorded_team_is_that_of_the_last_month(gpuconsole: Line, history: Path) -> None:
    (budget,) = of(gpuconsole, "--history", str(history), "--budget", "research=1000")["budgets"]
    # 30 hours of February are over, and 642 follow at 2 USD.
    assert (budget["spent_usd"], budget["forecast_usd"], budget["alert"]) == (60.0, 1344.0, True)


def test_the_focus_export_of_a_recorded_month_has_a_row_for_each_hour(gpuconsole: Line, history: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(gpuconsole("cost", "--month", "2026-02", "-o", "focus").out)))
    assert len(rows) == 3 * 30
    assert {row["ProviderName"] for row in rows} == {"prod"}
    assert sum(float(row["BilledCost"]) for row in rows) == pytest.approx(105.0)


def test_a_file_that_is_no_history_is_said(gpuconsole: Line, cluster: Path) -> None:
    done = gpuconsole("cost", "--history", str(cluster))
    assert (done.status, done.out) == (2, "")
    assert str(cluster) in done.err


def test_the_labels_and_budgets_of_the_configuration_count(
    gpuconsole: Line, cluster: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("cost: {team_label: user, budgets: {ada: 10}}")
    monkeypatch.setenv("GPUCONSOLE_CONFIG", str(file))
    found = of(gpuconsole, str(cluster), "--until", "3h")
    assert [item["name"] for item in found["items"]] == ["ada"]
    assert [(one["team"], one["alert"]) for one in found["budgets"]] == [("ada", True)]


def test_hostile_names_stay_text_in_every_format(gpuconsole: Line, tmp_path: Path) -> None:
    work = job("train", 8, "1h")
    work["metadata"]["labels"]["team"] = "=1+1|<script>alert(1)</script>\x1b[31m"
    file = written(tmp_path, node("n1", "nvidia-a100-80gb"), work)
    for output in ("text", "json", "csv", "markdown", "html", "focus"):
        printed = gpuconsole("cost", str(file), "--until", "1h", "-o", output).out
        assert "\x1b" not in printed, output
        if output in ("markdown", "html"):
            assert "<script>" not in printed, output
        if output in ("csv", "focus"):
            assert "=1+1" in printed
            assert not [cell for row in csv.reader(io.StringIO(printed)) for cell in row if cell.startswith("=")]
