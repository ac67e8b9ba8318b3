"""What `simulate` sums up: losses that are unknown, and workloads by their phase."""

from gpuconsole.cli.report import as_json, as_text, report
from gpuconsole.model.events import Happened, What
from tests.insight.world import ORG_QUEUES, START, pod, running, world


def line(lost: float = 0.0, cost: float = 0.0, queue: str = "cq-prod", **fields: object) -> Happened:
    return Happened(
        time=START,
        what=What.EVICTED,
        workload="prod/w",
        queue=queue,
        lost_gpu_seconds=lost,
        cost=cost,
        **fields,  # type: ignore[arg-type]
    )


def test_losses_that_are_unknown_are_no_noughts() -> None:
    cluster = world(ORG_QUEUES)
    lines = [line(3600, 2.0), line(lost_unknown=True), line(lost_unknown=True, queue="cq-research"), line(queue="idle")]
    summed = report(lines, before=cluster, after=cluster, seed=1)
    assert [text.split()[-3:] for text in as_text(summed)[1:4]] == [
        ["at", "least", "2.00"],
        ["0s", "unknown", "unknown"],
        ["0s", "0.0", "0.00"],
    ]
    assert [
        (row["queue"], row["lostGpuHours"], row["cost"], row["lossesUnknown"]) for row in as_json(summed)["queues"]
    ] == [
        ("cq-prod", 1.0, 2.0, 1),
        ("cq-research", None, None, 1),
        ("idle", 0.0, 0.0, 0),
    ]


def test_a_workload_has_the_phase_that_its_pods_have_at_the_end() -> None:
    held = running("train", "prod/lq", 4, "cq-prod")
    before = world([*ORG_QUEUES, held])
    after = world([*ORG_QUEUES, held, pod("p", wants=4, workload="prod/train")])
    (row,) = as_json(report([], before=before, after=after, seed=1))["workloads"]
    assert (row["workload"], row["state"]) == ("prod/train", "admitted")
