"""Lists of changes as files: what they may say, what is wrong with them, and that what is written reads back."""

from typing import Any

import msgspec
import pytest

from gpuconsole.model.clock import HOUR, MINUTE, SECOND, Span
from gpuconsole.model.commands import (
    AddNodes,
    Command,
    Copy,
    Delete,
    Divide,
    FailNode,
    Finish,
    InCluster,
    InterruptSpot,
    Later,
    Reconfigure,
    SetCohort,
    SetPreemption,
    SetPriority,
    SetQuota,
    SetStopPolicy,
    SetTaint,
    SetWeight,
    Submit,
)
from gpuconsole.model.objects import Object
from gpuconsole.model.queues import PreemptionPolicy, ResourceFlavor, StopPolicy
from gpuconsole.sim.scenario_form import Changes, ScenarioError, read_changes, to_change_list
from tests.support.sim_cluster import GPU, START

FLAVOR = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "h100"}}
MADE = Submit((ResourceFlavor(name="h100"),), (msgspec.json.encode(FLAVOR).decode(),))


def read(document: dict[str, Any], *objects: Object) -> Changes:
    return read_changes([document], "change.yaml", START, objects=objects)


def problems(document: dict[str, Any]) -> list[str]:
    with pytest.raises(ScenarioError) as error:
        read(document)
    return str(error.value).splitlines()


def test_steps_are_those_of_a_scenario_and_time_passes_between_them() -> None:
    changes = read(
        {
            "name": "n",
            "horizon": "2h",
            "steps": [
                {"commands": [{"type": "set-weight", "queue": "red", "weight": 2}], "finish": ["red/a"]},
                {"advanceSeconds": 600, "delete": ["red/b"], "create": [FLAVOR]},
            ],
        }
    )

    assert changes == Changes(
        name="n",
        horizon=2 * HOUR,
        places=(
            "steps[0].finish[0]",
            "steps[0].commands[0] (set-weight red)",
            "steps[1].delete[0]",
            "steps[1].create",
        ),
        commands=(
            Finish("red/a"),
            SetWeight("red", 2.0),
            Later(10 * MINUTE, Delete("", "red/b")),
            Later(10 * MINUTE, MADE),
        ),
    )


def test_a_limit_that_is_left_out_is_not_one_that_is_null() -> None:
    quota = {"type": "set-quota", "clusterQueue": "red", "flavor": "a100", "resource": GPU, "nominal": 4}
    document = {"steps": [{"commands": [quota, {**quota, "borrowingLimit": None, "lendingLimit": 2}]}]}

    assert read(document).commands == (SetQuota("red", "a100", GPU, 4), SetQuota("red", "a100", GPU, 4, None, 2))


def test_manifests_beside_it_come_first() -> None:
    flavor = ResourceFlavor(name="h100")

    assert read({"steps": [{"delete": ["red/b"]}]}, flavor).commands == (Submit((flavor,)), Delete("", "red/b"))
    assert read_changes([], "change.yaml", START, objects=[flavor]).commands == (Submit((flavor,)),)


WRONG: dict[str, tuple[dict[str, Any], list[str]]] = {
    "nothing": ({"steps": []}, ["change.yaml: no changes; add steps with commands, create or delete"]),
    "an expectation": (
        {"steps": [{"delete": ["red/a"], "expect": [{"noEvictions": True}]}]},
        ["change.yaml: steps[0].expect: expectations belong in drills, not in changes"],
    ),
    "a cluster of its own": (
        {"objects": [], "steps": [{"delete": ["red/a"]}]},
        ["change.yaml: unknown key 'objects'; the keys here are name, description, horizon, steps"],
    ),
    "an unknown command": (
        {"steps": [{"commands": [{"type": "explode"}]}]},
        ["change.yaml: steps[0].commands[0].type: 'explode' is no command; "],
    ),
    "a horizon that is none": (
        {"horizon": "soon", "steps": [{"delete": ["red/a"]}]},
        ["change.yaml: horizon: "],
    ),
}


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_named_with_its_place(case: tuple[dict[str, Any], list[str]]) -> None:
    document, lines = case
    found = problems(document)

    assert [line[: len(wanted)] for line, wanted in zip(found, lines, strict=True)] == lines


COMMANDS: tuple[Command, ...] = (
    MADE,
    Copy("Job/red/a", "a-copy2"),
    Delete("", "red/a"),
    Delete("jobs", "Job/red/a"),
    Delete("cluster_queues", "red"),
    Finish("red/b"),
    SetPriority("red/a", 5),
    SetQuota("red", "a100", GPU, 4, None, 0),
    SetQuota("red", "a100", GPU, 4),
    SetWeight("red/lq", 2.5, "LocalQueue"),
    SetCohort("red", ""),
    SetPreemption("red", reclaim_within_cohort=PreemptionPolicy.ANY),
    SetStopPolicy("red", StopPolicy.HOLD),
    SetTaint("n1", "k", "v", "NoExecute"),
    AddNodes("n1", 3),
    Divide("n1", "all-1g.10gb"),
    Reconfigure(feature_gates={"PartialAdmission": False}, placement={"score": "spread"}),
    FailNode("n1"),
    InterruptSpot("n1"),
    InCluster("west", FailNode("n1")),
    InCluster("west", Delete("nodes", "n1")),
    InCluster("west", MADE),
)


@pytest.mark.parametrize("after", [0, 90 * SECOND])
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: type(command).__name__)
def test_what_is_written_reads_back(command: Command, after: Span) -> None:
    asked = Later(after, command) if after else command
    document = to_change_list([asked], 25 * HOUR + 30 * SECOND, lambda thing: {})

    found = read(document)
    assert (found.commands, found.horizon) == ((asked,), 25 * HOUR + 30 * SECOND)


def test_changes_at_several_moments_are_written_in_the_order_of_time() -> None:
    asked = (Later(HOUR, Finish("red/c")), Finish("red/a"), Later(MINUTE, Finish("red/b")))
    document = to_change_list(asked, HOUR, lambda thing: {})

    assert document["steps"] == [
        {"finish": ["red/a"]},
        {"advanceSeconds": 60.0, "finish": ["red/b"]},
        {"advanceSeconds": 3540.0, "finish": ["red/c"]},
    ]
