"""A shadow follows the stand-in for Kueue on a real API server: each decision is the engine's, live and replayed."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live import stock
from tests.live.api import Api
from tests.live.controlplane import ControlPlane
from tests.live.identities import KUEUE, READER
from tests.live.kueue.controllers import KueueStandIn
from tests.live.test_kueue import wait_for

pytestmark = pytest.mark.live


@pytest.fixture
def api(plane: ControlPlane) -> Iterator[Api]:
    """Two ClusterQueues of a cohort, cq-a with 16 GPUs and cq-b with 8; Kueue is not at work yet."""
    with stock.queues(plane.api()) as api:
        yield api


def test_each_decision_of_the_stand_in_is_the_engines_and_its_recording_says_the_same(
    plane: ControlPlane, api: Api, tmp_path: Path
) -> None:
    file = tmp_path / "shadow.jsonl"
    live = ["--live", "--kubeconfig", str(plane.kubeconfig(READER)), "--for", "20s", "--save", str(file)]
    shadow = [sys.executable, "-m", "gpuconsole", "shadow", "-o", "json"]
    environment = {**os.environ, "GPUCONSOLE_STATE_DIR": str(tmp_path)}
    with KueueStandIn(plane.api(KUEUE)):
        following = subprocess.Popen(
            [*shadow, *live], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert following.stderr is not None
        assert "watching for 20s" in following.stderr.readline()
        api.create(stock.job("borrows", "lq-b", gpus=8, pods=3))
        wait_for(api, "borrows", "PodsReady")
        api.create(stock.job("huge", "lq-b", gpus=8, pods=4))
        api.create(stock.job("owner", "lq-a", gpus=8))
        wait_for(api, "borrows", "Evicted")
        wait_for(api, "owner", "PodsReady")
        out, said = following.communicate(timeout=60)
    found = json.loads(out)
    assert found["disagreements"] == []
    assert (following.returncode, found["agreement"], found["unknown"]) == (0, 1.0, 0)
    assert {kind for kind, one in found["kinds"].items() if one["agreed"]} == {"quota-reserved", "preempted", "pending"}
    assert f"{file}:" in said
    again = subprocess.run(
        [*shadow, str(file)], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert counts(json.loads(again.stdout)) == counts(found)
    text = file.read_text()
    assert not any(name in text for name in ("team-a", "borrows", "owner-", "cq-a", "lq-b"))


def counts(found: dict[str, Any]) -> dict[str, Any]:
    return {key: found[key] for key in ("since", "decisions", "agreed", "unknown", "kinds", "states", "causes")}
