"""Forks of recorded clusters decide what the real Kueue decided next."""

from pathlib import Path

import pytest

from gpuconsole.insight.forecast.backtest import DifferenceCause
from tests.support.shared_material import CONFORMANCE
from tests.tools.recorded import (
    ADMISSION,
    PREEMPTION,
    QueueKnowledge,
    knowledge_of_queues,
    looked_on,
    next_decisions,
)

LIVE = (CONFORMANCE or Path()) / "live"
AT_LEAST = {"classical.jsonl.gz": (0.95, 0.97, 0.98, 0.99), "fair.jsonl.gz": (0.90, 0.90, 0.96, 0.94)}
"""Parts of admissions and preemptions that forks named; of what forks named as next, the parts that came."""


@pytest.mark.skipif(not LIVE.is_dir(), reason="no recordings beside the project: they were not replayed")
@pytest.mark.parametrize("name", AT_LEAST)
def test_the_next_decisions_of_a_fork_are_those_that_kueue_took(name: str) -> None:
    score = next_decisions(LIVE / name)
    pairs = [(score.foreseen, score.taken), (score.came, score.named)]
    parts = [part[kind] / whole[kind] for part, whole in pairs for kind in (ADMISSION, PREEMPTION)]
    assert all(part >= bar for part, bar in zip(parts, AT_LEAST[name], strict=True)), parts


@pytest.mark.skipif(not LIVE.is_dir(), reason="no recordings beside the project: they were not replayed")
@pytest.mark.parametrize(("name", "most"), [("classical.jsonl.gz", 0.01), ("fair.jsonl.gz", 0.05)])
def test_what_is_no_agreement_is_mostly_a_race_between_two_looks(name: str, most: float) -> None:
    said = looked_on(LIVE / name)
    assert said.of(DifferenceCause.DISAGREEMENT) <= most * said.decisions
    assert said.of(DifferenceCause.RACE) > said.of(DifferenceCause.DISAGREEMENT)


@pytest.mark.skipif(not LIVE.is_dir(), reason="no recordings beside the project: they were not replayed")
def test_a_forecast_with_the_queues_of_a_shadow_is_right_more_often_than_one_of_looks() -> None:
    found = knowledge_of_queues(LIVE / "fair.jsonl.gz", most=200)
    assert found == QueueKnowledge(decisions=202, with_shadow=199, without=181)
