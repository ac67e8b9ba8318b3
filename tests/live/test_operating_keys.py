"""An operator at the keyboard, on a real cluster: logs, a shell, an editor, another context, by their keys."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live import stock
from tests.live.api import Api, until
from tests.live.controlplane import ControlPlane
from tests.live.identities import KUEUE, OPERATOR
from tests.live.kueue.controllers import KueueStandIn
from tests.tools.pty_console import PtyConsole

pytestmark = pytest.mark.live
COMMAND = Path(sys.executable).with_name("gpuconsole")
JOBS = "/apis/batch/v1/namespaces/team-a/jobs"
QUEUE = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/cq-a"


@pytest.fixture
def cluster(plane: ControlPlane) -> Iterator[Api]:
    with stock.queues(plane.api()) as api, KueueStandIn(plane.api(KUEUE)):
        api.create(stock.job("talks", "lq-a", gpus=1, pods=2))
        until(lambda: api.get(f"{JOBS}/talks")["status"].get("ready") == 2)
        yield api


def test_an_operator_reads_logs_edits_and_goes_elsewhere(plane: ControlPlane, cluster: Api, tmp_path: Path) -> None:
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nsed -i 's/^spec:/spec:\\n  stopPolicy: Hold/; /stopPolicy: None/d' \"$1\"\n")
    editor.chmod(0o755)
    kubectl = tmp_path / "kubectl"
    kubectl.write_text('#!/bin/sh\necho "$@" >> "$0.called"\nexit 7\n')
    kubectl.chmod(0o755)
    environment = {
        "GPUCONSOLE_STATE_DIR": str(tmp_path),
        "KUBE_EDITOR": str(editor),
        "PATH": f"{tmp_path}:/usr/bin:/bin",
    }
    arguments = ["run", "--live", "--kubeconfig", str(plane.kubeconfig(OPERATOR)), "--context", "operator"]
    with PtyConsole([str(COMMAND), *arguments], 140, 40, environment) as console:
        console.wait("QUEUE|GPU")
        console.write("3")
        console.wait("talks")
        console.settle(0.5)
        console.write("l")
        console.wait("step 19")
        console.write("\x1b")
        console.settle(0.5)
        console.write("ms")
        console.wait("Shell in")
        console.write("\r")
        console.wait("ended with 7")
        assert "exec -it -n team-a talks-" in (tmp_path / "kubectl.called").read_text()
        console.write("2")
        console.wait("cq-a")
        console.write("/")
        console.write("cq-a\r")
        console.settle(0.8)
        console.write("me")
        console.wait("stopPolicy: Hold")
        console.write("\x13")
        console.wait("Apply this to")
        console.write("\t\r")
        until(lambda: cluster.get(QUEUE)["spec"].get("stopPolicy") == "Hold")
        console.wait("Done")
        console.settle(0.5)
        console.write(":ctx reader\r")
        console.wait("Connected to reader")
        console.wait("cq-a")
        console.settle(2.0)
        console.write("js")
        console.settle(1.0)
        console.write("s")
        console.wait("you may not patch")
    log = (tmp_path / "gpuconsole.log").read_text()
    assert "Traceback" not in log
    assert "done  edits" in log or "edits ClusterQueue" in log, "what became of it is in the audit"
