"""Feature gates by name: every one has Kueue's default; what cannot be set is said, with what is near."""

import json
from collections.abc import Mapping

import pytest

from gpuconsole.scheduling.kueue import config as gates
from gpuconsole.scheduling.kueue.config import GATE_DEFAULTS, KueueConfig, RequeuingStrategy, WaitForPodsReady
from tests.support.shared_material import CONFORMANCE


def test_every_gate_of_the_release_has_its_default() -> None:
    if CONFORMANCE is None or not CONFORMANCE.is_dir():
        pytest.skip("no conformance data beside the project")
    assert dict(GATE_DEFAULTS) == json.loads((CONFORMANCE / "tables" / "feature_gate_defaults.json").read_text())


def test_gates_of_a_stage_are_set_together_unless_named_or_locked() -> None:
    chosen = gates.resolve_gates({"AllAlpha": True, "PriorityBoost": False, "TASProfileMixed": False})
    alpha = {name for name, gate in gates.KNOWN_GATES.items() if gate.stage is gates.FeatureStage.ALPHA}
    assert chosen == {**dict.fromkeys(alpha - {"PriorityBoost"}, True), "TASProfileMixed": False}
    off = gates.resolve_gates({"AllBeta": False})
    assert {name for name, gate in gates.KNOWN_GATES.items() if gate.default and not off.keys() & {name}} == {
        name for name, gate in gates.KNOWN_GATES.items() if gate.stage is gates.FeatureStage.GA
    }


REFUSED: Mapping[str, tuple[dict[str, bool], list[str]]] = {
    "a known gate is welcome": ({"PartialAdmission": False}, []),
    "a locked gate may be set to what it is": ({"HierarchicalCohorts": True}, []),
    "a locked gate stays": (
        {"MultiKueueAllowInsecureKubeconfigs": True},
        [
            "cannot set feature gate MultiKueueAllowInsecureKubeconfigs to true, feature is locked to false; "
            "leave it out"
        ],
    ),
    "an unknown gate names the nearest, whatever the case": (
        {"partialadmissions": True, "TopologyAwareSchedulling": True},
        [
            "unrecognized feature gate: partialadmissions; did you mean PartialAdmission?",
            "unrecognized feature gate: TopologyAwareSchedulling; did you mean TopologyAwareScheduling?",
        ],
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_names_that_cannot_be_set(name: str) -> None:
    named, want = REFUSED[name]
    assert [f"{why}; {gates.gate_remedy(gate)}" for gate, why in gates.gate_refusals(named)] == want


CONTRADICTIONS: Mapping[str, tuple[dict[str, bool], list[str]]] = {
    "the defaults agree": ({}, []),
    "a part of a feature needs the feature": (
        {"KueueDRAIntegration": False, "KueueDRAIntegrationPartitionableDevices": False},
        ["KueueDRAIntegrationExtendedResource requires KueueDRAIntegration to be enabled"],
    ),
    "several are named in Kueue's order": (
        {"AllBeta": False, "TASBalancedPlacement": True, "ElasticJobsViaWorkloadSlicesWithTAS": True},
        [
            "TASBalancedPlacement requires TopologyAwareScheduling to be enabled",
            "ElasticJobsViaWorkloadSlicesWithTAS requires ElasticJobsViaWorkloadSlices to be enabled",
            "ElasticJobsViaWorkloadSlicesWithTAS requires TopologyAwareScheduling to be enabled",
        ],
    ),
    "profiles need topologies": (
        {"AllBeta": False, "TASProfileMixed": True},
        ["cannot use a TAS profile with TAS disabled"],
    ),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_gates_need_others(name: str) -> None:
    named, want = CONTRADICTIONS[name]
    assert [why for _, why in gates.contradictory_gates(named)] == want


def test_pods_have_to_become_ready_unless_the_gate_says_otherwise() -> None:
    settings = WaitForPodsReady(timeout=5, requeuing_strategy=RequeuingStrategy(timestamp="Creation"))
    config = KueueConfig(wait_for_pods_ready=settings)
    assert (config.pods_ready_settings, settings.effective_recovery_timeout, config.requeuing_timestamp) == (
        settings,
        5,
        "Creation",
    )
    off = KueueConfig(wait_for_pods_ready=settings, gates={"DisableWaitForPodsReady": True})
    assert (off.pods_ready_settings, off.requeuing_timestamp) == (None, "Eviction")


OPTIONS: Mapping[str, tuple[str, dict[str, bool] | None, list[str]]] = {
    "gates in the file": ("", {"PartialAdmission": False}, []),
    "gates as an option": ("PartialAdmission=false, PriorityBoost=T", None, []),
    "a gate without a value": ("PartialAdmission", None, ["missing bool value for PartialAdmission"]),
    "a gate with a value that is none": (
        "PartialAdmission=no",
        None,
        ['invalid value of PartialAdmission=no, err: strconv.ParseBool: parsing "no": invalid syntax'],
    ),
    "gates that cannot be set are all that is said": (
        "",
        {"Cats": True, "HierarchicalCohorts": False, "TASProfileMixed": True, "TopologyAwareScheduling": False},
        [
            "[unrecognized feature gate: Cats, "
            "cannot set feature gate HierarchicalCohorts to false, feature is locked to true]"
        ],
    ),
    "in two places": (
        "UnadmittedWorkloadsExplicitStatus=true",
        {},
        [
            "feature gates for CLI and configuration cannot both specified",
            "UnadmittedWorkloadsExplicitStatus requires UnadmittedWorkloadsObservability to be enabled",
        ],
    ),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_gates_are_given_as_an_option_or_in_the_file(name: str) -> None:
    text, named, want = OPTIONS[name]
    assert gates.gate_errors(text, named) == want
