"""KAI's SchedulingShard: its fields are read and checked, and what decides nothing here is noted."""

import json
from typing import Any

import pytest

from gpuconsole.model.kai import SchedulingShard, ShardSetting
from gpuconsole.model.manifests import load_text
from gpuconsole.ui.yaml_view import as_yaml
from tests.support.sample_manifests import errors_and_warnings


def shard(**spec: Any) -> str:
    head = {"apiVersion": "kai.scheduler/v1", "kind": "SchedulingShard", "metadata": {"name": "gpus"}}
    return json.dumps({**head, "spec": spec})


def test_a_shard_is_read_whole_and_written_again() -> None:
    text = shard(
        partitionLabelValue="gpu-nodes",
        placementStrategy={"gpu": "spread", "cpu": "binpack"},
        minRuntime={"preemptMinRuntime": "10m"},
        queueDepthPerAction={"reclaim": 8},
        args={"v": "3"},
        kValue=0.5,
        plugins={"elastic": {"enabled": False}, "minruntime": {"priority": 5, "arguments": {"a": "b"}}},
        actions={"preempt": {"priority": 450}},
    )
    loaded = load_text(text, strict=True)
    expected = SchedulingShard(
        name="gpus",
        partition="gpu-nodes",
        gpu_strategy="spread",
        queue_depth={"reclaim": 8},
        k_value=0.5,
        preempt_min_runtime="10m",
        plugin_settings={
            "elastic": ShardSetting(enabled=False),
            "minruntime": ShardSetting(priority=5, arguments={"a": "b"}),
        },
        action_settings={"preempt": ShardSetting(priority=450)},
        args={"v": "3"},
    )
    assert (loaded.objects, loaded.findings) == ((expected,), ())
    assert load_text(as_yaml(expected), strict=True).objects == (expected,)


def test_what_decides_nothing_here_is_noted() -> None:
    found = load_text(shard(usageDBConfig={"clientType": "prometheus"}, goMemLimit="2Gi")).findings
    assert [(finding.severity, finding.path, finding.code) for finding in found] == [
        ("note", "spec.goMemLimit", "not-simulated"),
        ("note", "spec.usageDBConfig", "not-simulated"),
    ]


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
    "the depth of an action that there is not": (
        {"queueDepthPerAction": {"evict": 1}},
        ("warning", "spec.queueDepthPerAction.evict", "bad-action"),
    ),
    "the depth of an action that spreading turns off": (
        {"placementStrategy": {"cpu": "spread"}, "queueDepthPerAction": {"consolidation": 1}},
        ("warning", "spec.queueDepthPerAction.consolidation", "bad-action"),
    ),
    "the depth of an action that is turned off": (
        {"actions": {"reclaim": {"enabled": False}}, "queueDepthPerAction": {"reclaim": 1}},
        ("warning", "spec.queueDepthPerAction.reclaim", "bad-action"),
    ),
}


@pytest.mark.parametrize(("spec", "finding"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_in_a_shard_is_told_at_its_field(spec: dict[str, Any], finding: tuple[str, str, str]) -> None:
    assert errors_and_warnings(shard(**spec)) == [finding]
