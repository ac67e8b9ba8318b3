"""The pages about scenarios and drills name everything that there is."""

import re
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from gpuconsole.insight.expectations import CHECKS, LISTS
from gpuconsole.insight.pending.reasons import PendingReason
from gpuconsole.scheduling.kube.profile import Score
from gpuconsole.sim import scenario_form as forms
from gpuconsole.sim.scenario_form import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "scenarios.md").read_text()
CODE = set(re.findall(r"[\w-]+", " ".join(re.findall(r"`[^`\n]+`", PAGE))))
"""Words of the page that are set as code."""
FORMS = (forms.ScenarioForm, forms.EngineForm, forms.PlacementForm, forms.CapacityForm, forms.StepForm, forms.GroupForm)


def keys() -> list[str]:
    parts = (forms.SpotForm, forms.LinksForm, forms.MigForm, forms.ReplicasForm, forms.StreamForm, forms.SharingForm)
    return [field.encode_name for form in (*FORMS, *parts) for field in msgspec.structs.fields(form)]


@pytest.mark.parametrize("key", sorted(set(keys())))
def test_every_key_of_a_scenario_is_explained(key: str) -> None:
    assert key in CODE


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_explained(name: str) -> None:
    assert f"`{name}`" in PAGE


def test_every_expectation_code_and_score_is_explained() -> None:
    words = [*CHECKS, *(f"{key}Includes" for key in LISTS), *PendingReason, *get_args(Score)]
    assert [word for word in words if f"`{word}`" not in PAGE and word != PendingReason.NOT_WAITING] == []


def test_every_drill_is_explained() -> None:
    page = (ROOT / "docs" / "reference" / "drills.md").read_text()
    names = sorted(path.stem for path in (ROOT / "fixtures" / "drills").glob("*.yaml"))
    assert [name for name in names if f"| `{name}` |" not in page] == []
