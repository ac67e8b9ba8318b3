"""`--kueue-config` and `--feature-gates`: the Kueue that is simulated is the one that the file configures."""

from pathlib import Path

import pytest
from msgspec.structs import replace
from yaml import safe_load

from gpuconsole.cli.options import OpenRequest
from gpuconsole.cli.sources import open_simulation
from gpuconsole.model.prices import load as load_prices
from gpuconsole.model.snapshot import EMPTY, encode
from gpuconsole.scheduling.kueue.configuration.loading import load_file
from gpuconsole.sim.policy import SimPolicy
from gpuconsole.sim.scenario import load_scenario
from tests.cli.test_commands import JOB, LOW, NODE, QUEUES
from tests.support.command_line import Line, Result

HEAD = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
FREE_GPUS = f"{HEAD}resources: {{excludeResourcePrefixes: [nvidia.com/]}}\n"
"""GPUs need no quota."""
WRONG = f"{HEAD}resources: {{quotaCheckStrategy: Always}}\nwaitForPodReady: {{}}\n"


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """Two jobs of 8 GPUs each, quota for one of them."""
    file = tmp_path / "cluster.yaml"
    file.write_text(QUEUES + LOW + JOB.format(name="other", priority="") + "---" + NODE)
    return file


def wrote(folder: Path, text: str, name: str = "kueue.yaml") -> Path:
    file = folder / name
    file.write_text(text)
    return file


def admitted(result: Result) -> int:
    """Jobs that were admitted in the first minute."""
    assert result.status == 0, result.err
    return len(result.lines)


def simulate(gpuconsole: Line, *arguments: str | Path) -> Result:
    return gpuconsole("simulate", *arguments, "--until", "1m", "-o", "jsonl", "--type", "admitted")


def test_the_file_configures_the_kueue_that_is_simulated(gpuconsole: Line, cluster: Path, tmp_path: Path) -> None:
    assert admitted(simulate(gpuconsole, cluster)) == 1
    assert admitted(simulate(gpuconsole, cluster, "--kueue-config", wrote(tmp_path, FREE_GPUS))) == 2


def test_a_configuration_among_the_files_is_taken(gpuconsole: Line, cluster: Path, tmp_path: Path) -> None:
    beside = wrote(tmp_path, FREE_GPUS)
    assert admitted(simulate(gpuconsole, cluster, beside)) == 2
    assert admitted(simulate(gpuconsole, cluster, beside, "--kueue-config", wrote(tmp_path, HEAD, "usual.yaml"))) == 1
    twice = simulate(gpuconsole, cluster, beside, wrote(tmp_path, HEAD, "usual.yaml"))
    assert twice.status == 2
    assert twice.err == (
        f"gpuconsole: found 2 Kueue Configurations ({beside}:1, {tmp_path}/usual.yaml:1); "
        "choose one with --kueue-config\n"
    )


def test_what_is_wrong_with_the_file_is_said_by_line(gpuconsole: Line, cluster: Path, tmp_path: Path) -> None:
    file = wrote(tmp_path, WRONG)
    lines = [
        f'{file}:4: error: Configuration waitForPodReady: unknown field "waitForPodReady"; '
        "did you mean 'waitForPodsReady'?",
        f"{file}:3: error: Configuration resources.quotaCheckStrategy: 'Always' is not supported; "
        'supported values: "BlockUndeclared", "IgnoreUndeclared"',
    ]
    for arguments in ((cluster, "--kueue-config", file), (cluster, file)):
        result = simulate(gpuconsole, *arguments)
        assert (result.status, result.err.splitlines()) == (1, [f"gpuconsole: {line}" for line in lines])
    checked = gpuconsole("validate", file)
    assert (checked.status, checked.lines[:2]) == (1, lines)


def test_a_configuration_that_is_right_is_counted(gpuconsole: Line, tmp_path: Path) -> None:
    result = gpuconsole("validate", wrote(tmp_path, FREE_GPUS))
    assert (result.status, result.lines) == (0, ["read: 1 Configuration", "0 errors, 0 warnings, 0 notes"])


def test_gates_are_set_on_the_command_line_or_in_the_file(gpuconsole: Line, cluster: Path, tmp_path: Path) -> None:
    assert admitted(simulate(gpuconsole, cluster, "--feature-gates", "PartialAdmission=false")) == 1
    wrong = simulate(gpuconsole, cluster, "--feature-gates", "PartialAdmision=false")
    unknown = "gpuconsole: --feature-gates: unrecognized feature gate: PartialAdmision\n"
    assert (wrong.status, wrong.err) == (2, unknown)
    gated = wrote(tmp_path, f"{HEAD}featureGates: {{PartialAdmission: false}}\n")
    twice = simulate(gpuconsole, cluster, "--kueue-config", gated, "--feature-gates", "PriorityBoost=true")
    both = "gpuconsole: --feature-gates: feature gates for CLI and configuration cannot both specified\n"
    assert (twice.status, twice.err) == (2, both)


def test_without_kueue_there_is_nothing_to_configure(gpuconsole: Line, tmp_path: Path) -> None:
    scenario = wrote(tmp_path, "objects: []\nengine: {admission: none}\n", "scenario.yaml")
    result = simulate(gpuconsole, scenario, "--kueue-config", wrote(tmp_path, HEAD))
    assert result.status == 2
    assert "engine.admission of this scenario is none" in result.err


def test_a_drill_runs_with_the_kueue_that_it_names_or_is_given(gpuconsole: Line, cluster: Path, tmp_path: Path) -> None:
    file = wrote(tmp_path, FREE_GPUS)
    both = "steps: [{advanceSeconds: 5, expect: [{admitted: [team/low, team/other]}]}]\nfiles: [cluster.yaml]\n"
    drill = wrote(tmp_path, both, "drill.yaml")
    assert gpuconsole("drill", "run", drill).status == 1
    assert gpuconsole("drill", "run", drill, "--kueue-config", file).status == 0
    for said in ("kueue.yaml", "{resources: {excludeResourcePrefixes: [nvidia.com/]}}"):
        named = wrote(tmp_path, f"{both}engine: {{kueueConfig: {said}}}\n", "named.yaml")
        assert gpuconsole("drill", "run", named).status == 0


SCENARIOS = {
    "inline": (
        "{waitForPodsReady: {timeout: soon}}",
        'engine.kueueConfig.waitForPodsReady.timeout: time: invalid duration "soon"; write it as 90s, 30m or 1h30m',
    ),
    "in a file": (
        "wrong.yaml",
        "engine.kueueConfig: {folder}/wrong.yaml:3: waitForPodReady: "
        "unknown field \"waitForPodReady\"; did you mean 'waitForPodsReady'?",
    ),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_what_is_wrong_with_a_scenario_s_kueue_is_said(gpuconsole: Line, tmp_path: Path, name: str) -> None:
    said, want = SCENARIOS[name]
    wrote(tmp_path, f"{HEAD}waitForPodReady: {{}}\n", "wrong.yaml")
    text = f"objects: []\nengine: {{kueueConfig: {said}}}\nfairSharingEnabled: true\n"
    scenario = wrote(tmp_path, text, "scenario.yaml")
    twice = "fairSharingEnabled: engine.kueueConfig says it; leave one of them out"
    lines = [f"{scenario}:2: error: {want.format(folder=tmp_path)}", f"{scenario}:3: error: {twice}"]
    assert simulate(gpuconsole, scenario).err.splitlines() == [f"gpuconsole: {line}" for line in lines]


SAVED = """
files: [cluster.yaml]
engine: {kueueConfig: {resources: {excludeResourcePrefixes: [nvidia.com/]}}, placement: {score: spread}}
prices: {gpu-hour: {l4: 7}}
"""


def test_a_saved_snapshot_goes_on_with_its_policy(gpuconsole: Line, cluster: Path, tmp_path: Path) -> None:
    saved = tmp_path / "saved.json"
    gpuconsole("simulate", wrote(tmp_path, SAVED, "scenario.yaml"), "--until", "0s", "--save", saved)
    policy = open_simulation(OpenRequest(snapshot=saved)).simulation.policy
    assert policy == load_scenario([safe_load(SAVED)], folder=tmp_path).policy
    usual = wrote(tmp_path, HEAD)
    other = wrote(tmp_path, "gpu-hour: {l4: 8}\n", "prices.yaml")
    chosen = OpenRequest(snapshot=saved, kueue_config=usual, prices=other, own_prices=True)
    changed = open_simulation(chosen).simulation.policy
    assert changed == replace(
        policy, kueue=load_file(usual).config, prices=load_prices(other.read_text(), "prices.yaml")
    )


def test_a_saved_snapshot_goes_on_with_its_seed(gpuconsole: Line, cluster: Path, tmp_path: Path) -> None:
    saved = tmp_path / "saved.json"
    gpuconsole("simulate", wrote(tmp_path, SAVED, "scenario.yaml"), "--until", "0s", "--seed", "7", "--save", saved)
    assert open_simulation(OpenRequest(snapshot=saved)).simulation.seed == 7
    assert open_simulation(OpenRequest(snapshot=saved, seed=0)).simulation.seed == 0


def test_a_snapshot_without_a_policy_is_simulated_with_the_usual_one(tmp_path: Path) -> None:
    saved = tmp_path / "live.json"
    saved.write_bytes(encode(EMPTY))
    assert open_simulation(OpenRequest(snapshot=saved)).simulation.policy == SimPolicy()


def test_a_policy_that_cannot_be_read_is_said(gpuconsole: Line, tmp_path: Path) -> None:
    saved = wrote(tmp_path, '{"time": 0, "policy": {"kueue": 5}}', "saved.json")
    result = gpuconsole("simulate", "--snapshot", saved)
    assert (result.status, "$.kueue" in result.err) == (2, True)
