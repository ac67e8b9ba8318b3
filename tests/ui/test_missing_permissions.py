"""What cannot be seen of a live cluster is named: in empty tables, while it is read, and all of it by `:rights`."""

import pytest

from gpuconsole.backends.base import Missing
from gpuconsole.backends.simulated import SimulatedBackend
from gpuconsole.errors import UnseenError
from gpuconsole.model.objects import Object
from gpuconsole.model.queues import LocalQueue
from gpuconsole.model.snapshot import Visibility, VisibilityGap
from gpuconsole.model.state import ClusterState
from gpuconsole.services.console import Console
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import SimPolicy
from gpuconsole.ui.screens.global_actions import RightsScreen
from tests.support.console_clusters import NOW, org_cohort, recorded
from tests.support.console_stage import SIZES, Stage, staged
from tests.support.scripted_live_backend import Elsewhere

NODES = Missing("list", "nodes")
MANY = tuple(Missing("watch", f"kind{number}.example.org", "team") for number in range(9))


def live(*things: Object, missing: tuple[Missing, ...] = (), loading: bool = False) -> Console:
    """A live cluster with little in it, of which something cannot be seen."""
    cluster = Elsewhere(things, NOW)
    cluster.missing, cluster.loading = missing, loading
    console = Console(cluster)
    console.tick(0)
    return console


async def ask(stage: Stage, words: str) -> None:
    await stage.press("colon")
    await stage.write(words)
    await stage.press("enter")


@pytest.mark.parametrize("key", ["3", "4"])
async def test_an_empty_table_that_may_not_be_read_says_so(key: str) -> None:
    resource = {"3": "workloads.kueue.x-k8s.io", "4": "nodes"}[key]
    async with staged(live(missing=(Missing("list", resource),))) as stage:
        await stage.press(key)
        assert f"cannot list {resource} at the cluster scope" in stage.text
        assert "No nodes" not in stage.text


async def test_a_table_says_forbidden_with_a_glyph() -> None:
    async with staged(live(missing=(Missing("list", "workloads.kueue.x-k8s.io"),))) as stage:
        await stage.press("3")
        assert "⊘ Forbidden: cannot list workloads.kueue.x-k8s.io" in stage.text


DOOR = LocalQueue(name="lq", namespace="team", cluster_queue="cq")
QUEUES = Missing("list", "clusterqueues.kueue.x-k8s.io")


async def test_a_cluster_queue_that_may_not_be_read_is_not_called_missing() -> None:
    async with staged(live(DOOR, missing=(QUEUES,))) as stage:
        await stage.press("2")
        assert "its ClusterQueue is not visible: cannot list clusterqueues.kueue.x-k8s.io" in stage.text
    async with staged(live(DOOR)) as stage:
        await stage.press("2")
        assert "ClusterQueue cq doesn't exist" in stage.text


@pytest.mark.parametrize("key", ["1", "2"])
async def test_a_cluster_queue_that_is_not_read_yet_is_not_called_missing(key: str) -> None:
    async with staged(live(DOOR, loading=True)) as stage:
        await stage.press(key)
        assert not any(claim in stage.text for claim in ("doesn't exist", "team/lq", "⚠"))


async def test_the_dashboard_of_somebody_who_sees_a_part_claims_nothing_about_the_rest() -> None:
    async with staged(live(DOOR, missing=(QUEUES, NODES))) as stage:
        # As GPUs, as troubles, as events, on the map.
        assert stage.text.count("cannot list nodes at the cluster scope") == 4
        assert not any(claim in stage.text for claim in ("doesn't exist", "no GPUs", "No nodes", "Nothing needs"))
    async with staged(live(DOOR)) as stage:
        assert all(claim in stage.text for claim in ("ClusterQueue cq doesn't exist", "no GPUs", "No nodes"))


async def test_a_table_that_is_being_read_says_so() -> None:
    async with staged(live(loading=True)) as stage:
        await stage.press("3")
        assert "… Loading" in stage.text
        assert "⊘" not in stage.text


@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_all_rights_that_are_missing_are_listed(size: tuple[int, int]) -> None:
    async with staged(live(missing=(NODES, *MANY)), size) as stage:
        await ask(stage, "rights")
        stage.screen(RightsScreen)
        assert stage.line("nodes").split() == ["▌", "list", "nodes", "the", "whole", "cluster"]
        assert [stage.line(right.resource).split() for right in MANY] == [
            ["watch", right.resource, "team"] for right in MANY
        ]


async def test_where_nothing_is_missing_that_is_said() -> None:
    async with staged(live()) as stage:
        await ask(stage, "rights")
        assert "○ No missing permissions." in stage.text
    async with staged(recorded(org_cohort())) as stage:
        await ask(stage, "rights")
        assert "○ No missing permissions." in stage.text


@pytest.mark.parametrize(
    ("key", "missing"), [("b", "workloads.kueue.x-k8s.io"), ("f", QUEUES.resource), ("F", "nodes")]
)
async def test_an_answer_that_rests_on_what_may_not_be_read_says_nothing(key: str, missing: str) -> None:
    async with staged(live(missing=(Missing("list", missing),))) as stage:
        await stage.press("2", key)
        await stage.settle()
        assert "not enough data for an answer" in stage.text
        assert f"unknown: cannot list {missing} at the cluster scope" in stage.text


async def test_what_comes_is_not_foretold_by_what_may_not_be_read() -> None:
    console = live(missing=(QUEUES,))
    said = "not enough data for an answer: cannot list clusterqueues.kueue.x-k8s.io at the cluster scope"
    for ask in (lambda: console.answers.looks((), 0), lambda: console.answers.plan((), 0), console.answers.risk):
        with pytest.raises(UnseenError, match=said):
            ask()
    assert list(console.answers.ahead("team/w")) == []
    assert list(console.answers.outlook()) == []


async def test_a_saved_cluster_is_asked_no_more_than_was_seen_of_it() -> None:
    state = ClusterState(NOW)
    state.seen = Visibility(
        gaps=(VisibilityGap(table="nodes", resource="nodes", why="cannot list nodes at the cluster scope"),)
    )
    simulation = Simulation.from_snapshot(state.freeze(), policy=SimPolicy(), seed=0)
    console = Console(SimulatedBackend(simulation))
    console.tick(0)
    assert console.snapshot.seen == state.seen
    with pytest.raises(UnseenError, match="not enough data for an answer: cannot list nodes"):
        console.answers.risk()
    async with staged(console) as stage:
        await stage.press("2", "F")
        await stage.settle()
        assert "unknown: cannot list nodes at the cluster scope" in stage.text
