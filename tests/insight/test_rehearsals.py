"""What-ifs of submissions to recorded clusters say what the real Kueue then did."""

from pathlib import Path

import pytest

from tests.support.shared_material import CONFORMANCE
from tests.tools.rehearsals import rehearse

LIVE = (CONFORMANCE or Path()) / "live"


@pytest.mark.skipif(not LIVE.is_dir(), reason="no recordings beside the project: they were not replayed")
def test_a_what_if_of_a_submission_names_its_victims_flavors_and_admission() -> None:
    score = rehearse(LIVE / "classical.jsonl.gz")
    total = len(score.rehearsals)
    assert total >= 20
    assert score.victims >= 0.95 * total
    assert score.flavors >= 0.98 * total
    assert score.in_time >= 0.8 * total
