"""What a command does not need is not loaded: the console's toolkit takes a third of a second."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gpuconsole.ui.screens.views import VIEWS

HEAVY = ("textual", "rich", "kubernetes", "httpx", "sqlite_utils", "apscheduler", "zstandard")
SCRIPT = """
import json, sys
from gpuconsole.cli import _status
sys.argv = ["gpuconsole", *json.loads(sys.argv[1])]
sys.stdout, out = sys.stderr, sys.stdout
_status()
out.write(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def loaded(*arguments: str) -> set[str]:
    """The packages that a process has loaded after a command."""
    command = [sys.executable, "-c", SCRIPT, json.dumps(arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return set(json.loads(done.stdout))


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["--version"], id="--version"),
        pytest.param(["--help"], id="--help"),
        pytest.param(["validate", "FILE"], id="validate"),
        pytest.param(["lint", "FILE"], id="lint"),
        pytest.param(["simulate", "FILE"], id="simulate"),
        pytest.param(["drill", "run", "FILE"], id="drill"),
        pytest.param(["slots", "FILE"], id="slots"),
        pytest.param(["mig", "FILE", "--config", "all-balanced"], id="mig"),
        pytest.param(["keys"], id="keys"),
    ],
)
def test_headless_commands_load_no_toolkit(arguments: list[str], tmp_path: Path) -> None:
    file = tmp_path / "empty.yaml"
    file.write_text("apiVersion: v1\nkind: Namespace\nmetadata: {name: team}\n")
    modules = loaded(*(str(file) if argument == "FILE" else argument for argument in arguments))
    assert modules & set(HEAVY) == set()


def test_the_version_loads_no_model_of_a_cluster() -> None:
    assert loaded("--version") & {"msgspec", "yaml"} == set()


FIRST_SCREEN = """
import json, sys
from importlib import import_module
for name in ("cli.run", "cli.live", "backends.kube.backend", "ui.app", "ui.screens.dashboard"):
    import_module(f"gpuconsole.{name}")
print(json.dumps(sorted(sys.modules)))
"""
ENGINES = ("sim.engine", "scheduling.kube.session", "scheduling.volcano.session", "scheduling.kai.session")


def test_the_first_screen_of_a_live_cluster_waits_for_no_engine_and_no_other_screen() -> None:
    done = subprocess.run([sys.executable, "-c", FIRST_SCREEN], capture_output=True, text=True, check=True, timeout=120)
    modules = set(json.loads(done.stdout))
    others = {f"gpuconsole.ui.screens.{name}" for name in VIEWS if name != "dashboard"}
    assert modules & ({f"gpuconsole.{name}" for name in ENGINES} | others) == set()
