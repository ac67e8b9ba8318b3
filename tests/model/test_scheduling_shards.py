"""KAI's SchedulingShard is known and its fields are checked; that nothing simulates it yet is said."""

import json
from typing import Any

import pytest

from gpuconsole.model.manifests import load_text
from tests.model.samples import errors_and_warnings

LEFT_OUT = ("warning", "kind", "not-simulated")


def shard(**spec: Any) -> str:
    head = {"apiVersion": "kai.scheduler/v1", "kind": "SchedulingShard", "metadata": {"name": "gpus"}}
    return json.dumps({**head, "spec": spec})


def test_a_shard_is_known_and_left_out_with_one_warning() -> None:
    text = shard(
        partitionLabelValue="gpu-nodes",
        placementStrategy={"gpu": "spread", "cpu": "binpack"},
        minRuntime={"preemptMinRuntime": "10m"},
        queueDepthPerAction={"reclaim": 8},
        args={"v": "3"},
        kValue=0.5,
    )
    assert errors_and_warnings(text) == [LEFT_OUT]
    loaded = load_text(text)
    assert (loaded.known_unsimulated, loaded.unknown) == ({"SchedulingShard (kai.scheduler)": 1}, {})
    assert loaded.findings[0].remedy == "simulate the nodes, queues and pods of one shard at a time"


WRONG = {
    "a field that there is not": ({"partition": "a"}, ("error", "spec.partition", "unknown-field")),
    "a value that is none of a label": (
        {"partitionLabelValue": "a b"},
        ("error", "spec.partitionLabelValue", "bad-label"),
    ),
    "a strategy that is none": (
        {"placementStrategy": {"gpu": "pack"}},
        ("error", "spec.placementStrategy.gpu", "bad-value"),
    ),
    "a span that is none": (
        {"minRuntime": {"reclaimMinRuntime": "soon"}},
        ("error", "spec.minRuntime.reclaimMinRuntime", "bad-span"),
    ),
    "a depth below zero": (
        {"queueDepthPerAction": {"reclaim": -1}},
        ("error", "spec.queueDepthPerAction.reclaim", "out-of-range"),
    ),
}


@pytest.mark.parametrize(("spec", "finding"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_in_a_shard_is_told_at_its_field(spec: dict[str, Any], finding: tuple[str, str, str]) -> None:
    assert sorted(errors_and_warnings(shard(**spec))) == sorted([finding, LEFT_OUT])
