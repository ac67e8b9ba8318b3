"""On a live cluster the workloads say what Kueue would do next; on a simulated one nobody has to guess."""

from gpuconsole.insight.index.queues import QueuePosition, VisibilityPositions
from gpuconsole.model.clock import SECOND
from gpuconsole.services.console import Console
from gpuconsole.ui import whatif_changes
from gpuconsole.ui.screens.workloads import WorkloadDetailScreen
from gpuconsole.ui.whatif_changes import try_out
from gpuconsole.ui.widgets.textpane import TextPane
from gpuconsole.workers.client import Worker
from tests.insight.test_forecast_check import WAITS, admitted
from tests.support.console_clusters import busy_org
from tests.support.console_stage import staged
from tests.support.scripted_live_backend import Elsewhere
from tests.support.snapshots import ORG, ORG_QUEUES, START, node, pod, waiting

SIZE = (160, 40)


def live(*objects: object) -> tuple[Elsewhere, Console]:
    cluster = Elsewhere(objects, START)  # type: ignore[arg-type]
    console = Console(cluster)
    look(console)
    return cluster, console


def look(console: Console) -> None:
    console.tick(0)
    assert console.forecaster is not None
    assert console.forecaster.look()


async def test_each_row_says_what_comes_next() -> None:
    fits, huge = waiting("fits", "prod/lq", 8, minutes_ago=2), waiting("huge", "prod/lq", 64, minutes_ago=1)
    _, console = live(*ORG_QUEUES, fits, huge)
    async with staged(console, SIZE) as stage:
        await stage.press("3")
        assert "FORECAST" in stage.line("WORKLOAD")
        assert stage.line("fits").rstrip(" │┃▌").endswith("✓ cycle 1")
        assert stage.line("huge").rstrip(" │┃▌").endswith("pending")


async def test_victims_are_marked_before_they_go() -> None:
    owner = waiting("owner", "prod/lq", 8, priority=10_000)
    busy = pod("rlhf-0", "n1", gpus=(0, 1, 2, 3), workload="research/rlhf")
    _, console = live(*ORG, node("n1"), busy, owner)
    async with staged(console, SIZE) as stage:
        await stage.press("3")
        assert "preempts 1" in stage.line("owner")
        assert "✖ by prod" in stage.line("rlhf")


async def test_the_page_of_a_workload_says_it_in_words_with_its_age_and_what_was_assumed() -> None:
    cluster, console = live(*ORG_QUEUES, waiting("fits", "prod/lq", 8, minutes_ago=2))
    cluster.assumed = ("Kueue's Configuration is assumed to be the default",)
    cluster.put(waiting("new", "prod/lq", 1))
    look(console)
    cluster.now += 3 * SECOND
    console.tick(0)
    async with staged(console, SIZE) as stage:
        await stage.press("3", "slash")
        await stage.write("fits")
        await stage.press("enter", "enter")
        stage.screen(WorkloadDetailScreen)
        assert stage.line("admitted in cycle 1 on a100")
        assert stage.line("simulated 3s ago: an estimate, not a reservation")
        assert stage.line("Kueue's Configuration is assumed to be the default")


async def test_kueues_own_place_stands_beside_ours() -> None:
    first, second = waiting("first", "prod/lq", 16, minutes_ago=2), waiting("second", "prod/lq", 16, minutes_ago=1)
    cluster, console = live(*ORG_QUEUES, first, second)
    places = {"prod/second": QueuePosition(1, 1), "prod/first": QueuePosition(2, 2)}
    cluster.told_standings = VisibilityPositions(
        queue="cq-prod", source="visibility API v1beta2", time=START, places=places
    )
    cluster.now += 7 * SECOND
    console.tick(0)
    async with staged(console, SIZE) as stage:
        await stage.press("3", "slash")
        await stage.write("second")
        await stage.press("enter", "enter")
        assert stage.line("position by Kueue 1 (1 in its LocalQueue): visibility API v1beta2, 7s")


async def test_where_kueue_names_no_place_it_is_told_why() -> None:
    cluster, console = live(*ORG_QUEUES, waiting("alone", "prod/lq", 99))
    cluster.told_standings = VisibilityPositions(queue="cq-prod", trouble="may not [bold]list")
    async with staged(console, SIZE) as stage:
        await stage.press("3", "slash")
        await stage.write("alone")
        await stage.press("enter", "enter")
        assert stage.line("no position from Kueue: may not [bold]list")


async def test_forecast_and_what_if_say_how_often_the_engine_agreed_with_kueue() -> None:
    cluster = Elsewhere((*ORG, WAITS, waiting("huge", "prod/lq", 64, minutes_ago=1)), START)
    console = Console(cluster, worker=Worker())
    assert console.shadow is not None
    console.tick(0)
    console.shadow.follow()
    cluster.put(admitted(WAITS))
    console.tick(0)
    console.shadow.follow()
    look(console)
    sentence = "The engine agreed with Kueue in 0 of 1 decisions of the last 24 h on this cluster."
    async with staged(console, SIZE) as stage:
        await stage.press("3", "slash")
        await stage.write("huge")
        await stage.press("enter", "enter")
        assert sentence in " ".join(stage.screen(WorkloadDetailScreen).query_one("#why", TextPane).text.split())
        try_out(stage.app, whatif_changes.submit([waiting("next", "prod/lq", 1)], "prod/next"))
        await stage.settle()
        await stage.press("enter")
        result = " ".join(stage.app.screen.query_one("#result", TextPane).text.split())
        assert "VERDICT" in result
        assert sentence in result


async def test_a_simulated_cluster_has_no_such_column() -> None:
    async with staged(busy_org(), SIZE) as stage:
        await stage.press("3")
        assert "FORECAST" not in stage.line("WORKLOAD")
