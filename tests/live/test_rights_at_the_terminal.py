"""Who may read a part of the cluster opens the console on it: what is missing is named where it would stand."""

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
        (NODELESS, [], "4", "may not list nodes"),
        (VIEWER, ["--namespace", "team-a"], "2", "may not list clusterqueues"),
        (NOBODY, [], "3", "may not list workloads"),
        (NOBODY, [], "4", "may not list nodes"),
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
