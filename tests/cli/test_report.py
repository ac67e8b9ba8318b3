"""What `simulate` sums up: losses that are unknown, and workloads by their phase."""

from msgspec.structs import replace

from gpuconsole.cli.simulate import as_json, as_text, report
from gpuconsole.model.clock import MINUTE, format_time
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.workloads import Condition
from tests.support.snapshots import ORG_QUEUES, START, pod, running, world


def line(lost: float = 0.0, cost: float = 0.0, queue: str = "cq-prod", **fields: object) -> HistoryEvent:
    return HistoryEvent(
        time=START,
        what=HistoryEventKind.EVICTED,
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


def test_what_runs_has_started_though_no_line_tells_of_it() -> None:
    """The next slice of an elastic job takes over the pods of the one before: none of them starts."""
    ready = Condition("PodsReady", True, "Started", "", START + MINUTE)
    slices = [running(name, "prod/lq", 4, "cq-prod") for name in ("taken-over", "admitted")]
    bare = [replace(one, conditions=tuple(c for c in one.conditions if c.type != ready.type)) for one in slices]
    made = [replace(bare[0], conditions=(*bare[0].conditions, ready)), bare[1]]
    lines = [HistoryEvent(time=START, what=HistoryEventKind.SUBMITTED, workload=one.key, gpus=4) for one in made]
    found = as_json(report(lines, before=world(ORG_QUEUES), after=world([*ORG_QUEUES, *made]), seed=1))["workloads"]
    assert [(row["workload"], row["started"]) for row in found] == [
        ("prod/taken-over", format_time(START + MINUTE)),
        ("prod/admitted", None),
    ]
