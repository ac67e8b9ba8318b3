"""Settings: options win over the environment, that over the file; what is wrong is said with where it came from."""

from pathlib import Path
from typing import Any

import pytest

from gpuconsole.config import Config, SimulationSettings, load
from gpuconsole.errors import ConfigError

FILE = "theme: light\nsimulation: {seed: 1, speed: 2}\n"


def loaded(tmp_path: Path, text: str = FILE, environ: dict[str, str] | None = None, **options: Any) -> Config:
    file = tmp_path / "config.yaml"
    file.write_text(text)
    return load(options, {"GPUCONSOLE_CONFIG": str(file), **(environ or {})})


def test_options_win_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    environ = {
        "GPUCONSOLE_SIMULATION__SEED": "10",
        "GPUCONSOLE_SIMULATION__SPEED": "20",
        "GPUCONSOLE_READ_ONLY": "true",
    }
    config = loaded(tmp_path, environ=environ, simulation={"speed": 200.0, "seed": None}, worker=None)
    assert config == Config(theme="light", read_only=True, simulation=SimulationSettings(seed=10, speed=200.0))


def test_the_log_may_tell_more(tmp_path: Path) -> None:
    assert loaded(tmp_path, "", environ={"GPUCONSOLE_LOG_LEVEL": "debug"}) == Config(log_level="debug")


def test_an_empty_file_changes_nothing(tmp_path: Path) -> None:
    assert loaded(tmp_path, "") == Config()


def test_without_a_file_there_are_the_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert load({}, {}) == Config()


def test_other_peoples_variables_are_let_be(tmp_path: Path) -> None:
    assert loaded(tmp_path, "", environ={"GPUCONSOLE_CONFORMANCE": "x", "THEME": "light"}) == Config()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("simulation: {speed: fast}", "simulation.speed: Expected `float`, got `str`", id="a wrong type"),
        pytest.param("simulation: {speed: 0}", "simulation.speed: Expected `float` >= 1", id="too slow"),
        pytest.param("simulation: {gpus_per_node: 65}", "gpus_per_node: Expected `int` <= 64", id="too many GPUs"),
        pytest.param("thme: light", "Object contains unknown field `thme`", id="an unknown setting"),
        pytest.param("[1, 2]", "Expected `object`, got `array`", id="a list"),
        pytest.param("a: [", "while parsing a flow node", id="no YAML"),
    ],
)
def test_a_wrong_file_is_named_with_what_is_wrong_in_it(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, text)
    assert caught.value.origin == str(tmp_path / "config.yaml")
    assert problem in caught.value.problem


def test_a_wrong_variable_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"^GPUCONSOLE_SIMULATION__SEED: simulation\.seed: Expected `int \| null`, got `str`$"
    ):
        loaded(tmp_path, environ={"GPUCONSOLE_SIMULATION__SEED": "many"})


def test_a_file_that_was_named_has_to_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.yaml: no such file"):
        load({}, {"GPUCONSOLE_CONFIG": str(tmp_path / "nowhere.yaml")})


def test_the_state_folder_holds_history_and_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    assert Config().history_file == tmp_path / "xdg" / "gpuconsole" / "history.db"
    elsewhere = load({}, {"GPUCONSOLE_STATE_DIR": str(tmp_path)})
    assert (elsewhere.history_file, elsewhere.log_file) == (tmp_path / "history.db", tmp_path / "gpuconsole.log")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('state_dir: "/tmp/a\\0b"', "state_dir"),
        ('live: {protected: ["prod-*", "a\\0"]}', "live.protected[1]"),
        ('live: {telemetry: {headers: {"a\\0": b}}}', "live.telemetry.headers.a\ufffd"),
    ],
)
def test_a_nul_character_in_a_setting_is_an_error_with_its_place(tmp_path: Path, text: str, place: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, text)
    assert caught.value.origin == str(tmp_path / "config.yaml")
    assert caught.value.problem.startswith(f"{place}: NUL character in '")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("theme: " + "[" * 5000 + "]" * 5000, "nested too deeply"),
        ("simulation: {seed: " + "9" * 5000 + "}", "Exceeds the limit (4300 digits) for integer string conversion"),
        ("theme: 2026-13-45", "month must be in 1..12"),
        ('"\\ud800": 1', "invalid character (unpaired surrogate)"),
        ("theme: !!timestamp x", "a value does not match its YAML tag"),
        ("theme: !!bool x", "a value does not match its YAML tag"),
        ("theme: !!int ''", "a value does not match its YAML tag"),
    ],
    ids=["deep", "digits", "date", "surrogate", "time", "truth", "number"],
)
def test_a_file_that_yaml_cannot_make_values_of_is_an_error_with_its_name(
    tmp_path: Path, text: str, problem: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, text)
    assert caught.value.origin == str(tmp_path / "config.yaml")
    assert caught.value.problem.startswith(problem)
