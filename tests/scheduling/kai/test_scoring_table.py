"""The table of predicates and score bands that KAI's engine gives for a pod."""

from msgspec.structs import replace

from gpuconsole.model.cluster import PodPhase
from gpuconsole.model.labels import Taint
from gpuconsole.scheduling.placement import ScoreTable
from tests.scheduling.kai.test_engine import engine, node, pod, queue

CLUSTER = (
    node("full", 2),
    node("half", 2),
    node("idle", 2),
    replace(node("kept", 4), taints=(Taint("team", "other", "NoSchedule"),)),
    queue("a", 8),
    replace(pod("x", 2), node="full", phase=PodPhase.RUNNING),
    replace(pod("y", 1), node="half", phase=PodPhase.RUNNING),
)


def table(name: str, gpus: int) -> ScoreTable:
    found = engine(CLUSTER).scores(pod(name, gpus))
    assert found is not None
    return found


def test_the_densest_node_of_those_where_it_can_start_is_chosen() -> None:
    found = table("new", 1)
    assert found.chosen == "half"
    by_plugin = [column.plugin for column in found.plugins]
    assert {
        row.node: dict(zip(by_plugin, (s.weighted for s in row.scores), strict=True)) for row in found.rows[:2]
    } == {
        "half": dict.fromkeys(by_plugin, 0) | {"nodeavailability": 10_000, "nodeplacement": 675},
        "idle": dict.fromkeys(by_plugin, 0) | {"nodeavailability": 10_000, "nodeplacement": 450},
    }


def test_every_node_that_is_out_says_why() -> None:
    assert {row.node: row.refusal for row in table("new", 1).rows} == {
        "half": "",
        "idle": "",
        "full": "node(s) didn't have enough resources: GPUs",
        "kept": "node(s) had untolerated taint {team: other}",
    }


def test_a_pod_that_runs_is_judged_as_if_it_came_now_and_one_that_fits_nowhere_is_told_why() -> None:
    assert table("x", 2).chosen in ("full", "idle")
    assert table("new", 3).message == (
        "no nodes with enough resources were found: 1 node(s) had untolerated taint {team: other}. \n"
        "3 node(s) didn't have enough resources: GPUs."
    )


def test_asking_changes_nothing() -> None:
    made = engine(CLUSTER)
    before = (made.dump(), made.free_gpus())
    made.scores(pod("x", 2))
    made.scores(pod("new", 1))
    assert (made.dump(), made.free_gpus()) == before
