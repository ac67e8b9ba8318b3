"""An operator at the keyboard, on a real cluster: logs, a shell, an editor, another context, by their keys."""

import shutil
import socket
import sys
from pathlib import Path

import pytest

from tests.live import stock
from tests.live.api import Api, until
from tests.live.controlplane import ControlPlane
from tests.live.identities import OPERATOR
from tests.live.paths import CLUSTER_QUEUES, JOBS
from tests.live.processes import free_ports
from tests.tools.pty_console import PtyConsole

pytestmark = pytest.mark.live
COMMAND = Path(sys.executable).with_name("gpuconsole")
QUEUE = f"{CLUSTER_QUEUES}/cq-a"


@pytest.fixture(scope="module")
def cluster(queued: Api) -> Api:
    queued.create(stock.job("talks", "lq-a", gpus=1, pods=2))
    until(lambda: queued.get(f"{JOBS}/talks")["status"].get("ready") == 2)
    return queued


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
        console.insist("3", "WORKLOAD")
        console.insist("l", "step 19")
        console.insist("3", "WORKLOAD")
        console.insist("mS", "Open a shell in")
        console.insist("\r", "exited with 7")
        assert "exec -it -n team-a talks-" in (tmp_path / "kubectl.called").read_text()
        console.insist("2", "COHORT")
        for typed in ("/", "cq-a", "\r"):
            console.write(typed)
            console.settle(1.0)
        console.insist("me", "stopPolicy: Hold")
        console.insist("\x13", "Apply this to")
        console.write("\t\r")
        until(lambda: cluster.get(QUEUE)["spec"].get("stopPolicy") == "Hold")
        console.insist("", "Done")
        console.insist(":ctx reader\r", "Connected to reader")
        console.insist("2", "cq-a")
        console.write("j")
        # What a reader may do with the queue is asked for as soon as the cursor is on it.
        console.settle(1.0)
        console.insist("s", "you cannot patch")
    log = (tmp_path / "gpuconsole.log").read_text()
    assert "Traceback" not in log
    assert "done  edits" in log or "edits ClusterQueue" in log, "what became of it is in the audit"


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl here")
def test_a_shell_and_a_port_of_a_pod_come_by_kubectl(plane: ControlPlane, cluster: Api, tmp_path: Path) -> None:
    """As the kubelet, KWOK runs what is executed in a pod, and sends back what comes to the port of one."""
    arguments = ["run", "--live", "--kubeconfig", str(plane.kubeconfig(OPERATOR)), "--context", "operator"]
    (here,) = free_ports(1)
    with PtyConsole([str(COMMAND), *arguments], 140, 40, {"GPUCONSOLE_STATE_DIR": str(tmp_path)}) as console:
        console.wait("QUEUE|GPU")
        console.insist("3", "WORKLOAD")
        console.insist("mS", "Open a shell in")
        console.write("\r")
        console.wait(r"\x1b\[\?1049l")
        console.wait("[#$] ")
        console.insist("pwd; echo hello-$((6*7))\r", r"inside-a-pod\s+hello-42")
        console.write("exit 0\r")
        console.wait("exited with 0")
        console.insist("mf", "Forward a port of")
        console.write("\r")
        console.wait("PORT, or LOCAL:REMOTE")
        console.write(f"{here}:8080\r")
        assert until(lambda: echoed(here)) == b"hello"
    until(lambda: not echoed(here))
    log = (tmp_path / "gpuconsole.log").read_text()
    assert "Traceback" not in log


def echoed(port: int) -> bytes:
    """What comes back from a port; nothing where nobody listens."""
    try:
        with socket.create_connection(("127.0.0.1", port), 5) as connection:
            connection.sendall(b"hello")
            return connection.recv(100)
    except OSError:
        return b""
