"""The wheel works on its own: themes and fixtures travel inside it."""

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def run(*command: str | Path, cwd: Path) -> str:
    # No PYTHONPATH and another folder, so that nothing of the checkout can be imported by accident.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    environment["GPUCONSOLE_STATE_DIR"] = str(cwd / "state")
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `gpuconsole` command of a fresh environment that holds nothing but the wheel and what it depends on."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    (wheel,) = folder.glob("*.whl")
    venv.create(folder / "venv", with_pip=True)
    pip = folder / "venv" / "bin" / "pip"
    run(pip, "install", "--quiet", "-c", ROOT / "constraints.txt", wheel, cwd=folder)
    return folder / "venv" / "bin" / "gpuconsole"


def test_an_installed_wheel_simulates_a_bundled_fixture(installed: Path) -> None:
    lines = run(installed, "simulate", "three-nodes", "-o", "jsonl", cwd=installed.parents[2]).splitlines()
    evicted = [event["workload"] for event in map(json.loads, lines) if event["type"] == "evicted"]
    assert sorted(name.split("/")[-1] for name in evicted) == ["dev-0", "dev-1", "dev-2", "dev-3"]


def test_an_installed_wheel_brings_its_themes(installed: Path) -> None:
    site = next((installed.parents[1] / "lib").glob("python*/site-packages/gpuconsole/_assets"))
    assert {"dark.yaml", "light.yaml"} <= {path.name for path in (site / "themes").iterdir()}


def test_an_installed_wheel_brings_the_glossary(installed: Path) -> None:
    read = "from gpuconsole.ui.screens.help import find_term, load_terms; print(find_term(load_terms(), 'cohort').text)"
    said = run(installed.parent / "python", "-c", read, cwd=installed.parents[2])
    assert said.startswith("A group of ClusterQueues that borrow unused quota from each other.")
