"""Who may read a part of the cluster opens the console on it: what is missing is named where it would stand."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.live.api import Api
from tests.live.controlplane import ControlPlane
from tests.live.identities import NOBODY, NODELESS, VIEWER, Identity
from tests.tools.pty_console import PtyConsole

pytestmark = pytest.mark.live
COMMAND = Path(sys.executable).with_name("gpuconsole")


@pytest.mark.parametrize(
    ("who", "options", "key", "named"),
    [
        (NODELESS, [], "4", "cannot list nodes"),
        (VIEWER, ["--namespace", "team-a"], "2", "cannot list clusterqueues"),
        (NOBODY, [], "3", "cannot list workloads"),
        (NOBODY, [], "4", "cannot list nodes"),
    ],
    ids=lambda value: value.name if isinstance(value, Identity) else "",
)
def test_a_screen_says_what_may_not_be_read(
    plane: ControlPlane, busy: Api, tmp_path: Path, who: Identity, options: list[str], key: str, named: str
) -> None:
    arguments = ["run", "--live", "--kubeconfig", str(plane.kubeconfig(who)), "--context", who.name, *options]
    with PtyConsole([str(COMMAND), *arguments], 140, 40, {"GPUCONSOLE_STATE_DIR": str(tmp_path)}) as console:
        console.wait(r"partial: \d+ of \d+")
        console.insist(key, named)
    assert "Traceback" not in (tmp_path / "gpuconsole.log").read_text()


@pytest.mark.parametrize("command", [["slots"], ["ledger"], ["antipatterns"]], ids=lambda words: words[0])
def test_an_answer_says_what_it_may_not_see(plane: ControlPlane, busy: Api, tmp_path: Path, command: list[str]) -> None:
    options = ["--live", "--kubeconfig", str(plane.kubeconfig(NOBODY)), "--context", NOBODY.name]
    environment = os.environ | {"GPUCONSOLE_STATE_DIR": str(tmp_path)}
    said = subprocess.run([str(COMMAND), *command, *options, "-o", "json"], env=environment, capture_output=True)
    right = "cannot list nodes at the cluster scope"
    assert right in json.loads(said.stdout)["assumed"]
    assert f"gpuconsole: {right}" in said.stderr.decode().splitlines()


def test_an_answer_on_a_screen_says_it_too(plane: ControlPlane, busy: Api, tmp_path: Path) -> None:
    options = ["--kubeconfig", str(plane.kubeconfig(VIEWER)), "--context", VIEWER.name, "--namespace", "team-a"]
    with PtyConsole(
        [str(COMMAND), "run", "--live", *options], 140, 40, {"GPUCONSOLE_STATE_DIR": str(tmp_path)}
    ) as console:
        console.wait(r"partial: \d+ of \d+")
        console.insist("b", r"Borrowed quota[\s\S]*⊘[\s\S]*namespaces")
