"""A ClusterQueue's description tells Kueue's own metrics beside our counts, with source and age."""

import pytest
from msgspec.structs import replace

from gpuconsole.insight.index.queues import QueueMetrics
from gpuconsole.model.clock import HOUR, MINUTE, SECOND, Time
from gpuconsole.model.resources import GPU
from gpuconsole.services.console import Console
from tests.support.console_stage import Stage, staged
from tests.support.scripted_live_backend import Elsewhere
from tests.support.snapshots import ORG, START

SIZE = (120, 50)
TOLD = QueueMetrics(
    queue="",
    source="http://prometheus:9090",
    time=START - 12 * SECOND,
    since=START - 12 * SECOND - HOUR,
    pending=5,
    inadmissible=2,
    reserving=3,
    admitted=3,
    wait_median=12.5,
    wait_p95=180,
    evicted={"Preempted": 3},
    usage={("a100", GPU): 12.0},
)


def live(told: QueueMetrics) -> Console:
    cluster = Elsewhere(ORG, START)
    cluster.told_metrics = told
    console = Console(cluster)
    console.tick(0)
    return console


async def describe(stage: Stage) -> None:
    await stage.press("2", "slash")
    await stage.write("cq-research")
    await stage.press("enter", "d")
    await stage.settle()


async def test_they_stand_beside_our_counts_with_source_and_age() -> None:
    async with staged(live(TOLD), SIZE) as stage:
        await describe(stage)
        assert stage.line("http://prometheus:9090, 12s ago")
        assert stage.line("5 · console counts 0").split()[0] == "Pending"
        assert "console counts" not in stage.line("Admitted  ")
        assert stage.line("p50 12s, p95 3m, in the last hour")
        assert stage.line("Preempted 3, in the last hour")
        assert stage.line(f"a100 {GPU}").split()[-1] == "12"


@pytest.mark.parametrize(
    ("since", "said"),
    [
        (START - 12 * SECOND - 3 * HOUR - MINUTE, "Preempted 3, since Kueue's manager started 3h1m ago"),
        (0, "Preempted 3, since Kueue's manager started"),
    ],
)
async def test_what_the_manager_counted_itself_says_since_when(since: Time, said: str) -> None:
    async with staged(live(replace(TOLD, since=since)), SIZE) as stage:
        await describe(stage)
        assert stage.line("Evicted  ").partition("Evicted ")[2].strip() == said


async def test_why_there_are_none_is_said() -> None:
    async with staged(live(replace(TOLD, trouble="http://prometheus:9090: HTTP 503")), SIZE) as stage:
        await describe(stage)
        assert stage.line("http://prometheus:9090: HTTP 503")


async def test_where_nobody_is_asked_nothing_is_said_of_it() -> None:
    async with staged(live(QueueMetrics(queue="")), SIZE) as stage:
        await describe(stage)
        assert "ClusterQueue cq-research" in stage.text
        assert "Kueue's metrics" not in stage.text
