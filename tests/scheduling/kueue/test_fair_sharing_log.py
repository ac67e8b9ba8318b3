"""What the log tells at DEBUG of fair sharing's victims."""

import logging

import pytest

from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.preemption import fair_sharing as fair_sharing_log
from gpuconsole.scheduling.kueue.preemption.fair_sharing import DominantResourceShare
from tests.support.kueue_cluster import ANY, World, cohort, queue, workload

FAIR = KueueConfig(fair_sharing=True)


def contended(weight: float = 1.0) -> World:
    """Both queues borrow from their cohort; `b` has 6 of its 10 GPUs, and `a` wants 6, too."""
    queues = [queue("a", 0, cohort="c", reclaim=ANY, weight=weight), queue("b", 0, cohort="c")]
    world = World(cohort("c", 10), *queues, config=FAIR)
    world.run(*(workload(f"b{number}", "b", 3, created=number) for number in range(2)), admitted=True)
    world.apply(workload("a0", "a", 6, created=9))
    return world


def test_every_share_that_was_weighed_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger=fair_sharing_log.LOGGER.name):
        contended().cycle()
    assert list(dict.fromkeys(caplog.messages)) == [
        "fair sharing: 600 against 600 of ClusterQueue b: team/b1 stays (share without it 300);"
        " team/b0 stays (share without it 300)",
        "fair sharing: 600 against 600 of ClusterQueue b: its next workload stays by the second strategy",
    ]


def test_a_share_without_weight_is_beyond_all_and_nobody_is_judged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger=fair_sharing_log.LOGGER.name):
        contended(weight=0.0).cycle()
    assert list(dict.fromkeys(caplog.messages)) == [
        "fair sharing: +Inf against 600 of ClusterQueue b: no workload of it can pass",
        "fair sharing: +Inf against 600 of ClusterQueue b: its next workload stays by the second strategy",
    ]


def test_nothing_is_told_otherwise(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger=fair_sharing_log.LOGGER.name):
        contended().cycle()
    assert caplog.messages == []


def test_telling_changes_no_decision(caplog: pytest.LogCaptureFixture) -> None:
    silent = contended().cycle()
    with caplog.at_level(logging.DEBUG, logger=fair_sharing_log.LOGGER.name):
        assert contended().cycle() == silent


def test_shares_are_written_as_kueue_writes_them() -> None:
    assert fair_sharing_log.share_text(DominantResourceShare(1000.0, 3.0)) == "333.333333"
    assert fair_sharing_log.share_text(DominantResourceShare(1000.0, 2.0)) == "500"
    assert fair_sharing_log.share_text(DominantResourceShare(1000.0, 0.0)) == "+Inf"
    assert fair_sharing_log.share_text(DominantResourceShare(0.0, 0.0)) == "0"
