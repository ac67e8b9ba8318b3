"""Builds the programs of the throw-away control plane once: etcd, three parts of Kubernetes, and KWOK.

What was built lies in build/controlplane/, in a folder named after what it was built from; there is nothing to do when
that folder is there. Needs Go and, the first time, the modules that go.sum pins.
"""

import argparse
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

MODULE = Path(__file__).parent
BUILDS = MODULE.parent.parent / "build" / "controlplane"
KUBERNETES = "v1.36.3"
_MAJOR, _MINOR, _ = KUBERNETES.removeprefix("v").split(".")
_VERSION = "k8s.io/component-base/version"
# Without these the API server calls itself v0.0.0-master+$Format:%H$, and `kubectl version` stumbles over that.
LDFLAGS = " ".join(
    [
        "-s -w",
        f"-X {_VERSION}.gitVersion={KUBERNETES}",
        f"-X {_VERSION}.gitMajor={_MAJOR}",
        f"-X {_VERSION}.gitMinor={_MINOR}",
        f"-X {_VERSION}.gitTreeState=clean",
    ]
)
PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok")
STAGES = ("stage/node/fast", "stage/node/heartbeat-with-lease", "stage/pod/general")
"""The folders of KWOK's own life cycles of nodes and pods that are kept beside the programs."""
POLITE = 10
"""How much the build yields to what else runs."""


NOT_HERE = 75
"""The exit status where it is for the machine, not for what is built, that nothing was built (EX_TEMPFAIL)."""
WANTING = ("signal: killed", "no space left", "cannot allocate memory", "requires go >=", "toolchain not available")
"""What Go says of a machine that is too small, or whose Go is too old and cannot fetch a newer one."""


class BuildError(Exception):
    """The programs cannot be built; the message says why, and what can be done."""


class MachineError(BuildError):
    """They cannot be built on this machine as it is; on another, or later, they may be."""


def folder() -> Path:
    """Where the programs are, or would be, that belong to this go.mod and go.sum."""
    told = (MODULE / "go.mod").read_bytes() + (MODULE / "go.sum").read_bytes() + LDFLAGS.encode()
    return BUILDS / hashlib.sha256(told).hexdigest()[:12]


def is_built() -> bool:
    return all((folder() / name).exists() for name in (*PROGRAMS, "stages"))


def build(limit: float) -> Path:
    """Build what is missing, within `limit` seconds; other builds that are under way are waited for."""
    target = folder()
    if is_built():
        return target
    go = shutil.which("go")
    if go is None:
        raise MachineError("There is no Go here: install Go 1.26 or newer (https://go.dev/dl)")
    BUILDS.mkdir(parents=True, exist_ok=True)
    with _alone():
        if is_built():
            return target
        half = BUILDS / "half-built"
        shutil.rmtree(half, ignore_errors=True)
        half.mkdir()
        _compile(go, half, limit)
        (half / "server").rename(half / "etcd")
        _keep_stages(go, half / "stages")
        shutil.rmtree(target, ignore_errors=True)
        half.rename(target)
    return target


def _compile(go: str, into: Path, limit: float) -> None:
    """Go keeps what it compiled: a build that was cut off goes on from there the next time."""
    command = [go, "build", "-trimpath", "-ldflags", LDFLAGS, "-o", f"{into}/", "tool"]
    environment = {**os.environ, "CGO_ENABLED": "0"}
    with subprocess.Popen(
        command,
        cwd=MODULE,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: os.nice(POLITE) and None,
    ) as process:
        try:
            _, said = process.communicate(timeout=limit)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGTERM)
            if isinstance(error, subprocess.TimeoutExpired):
                text = f"The build did not end within {limit / 60:.0f} minutes; it goes on from there the next time"
                raise MachineError(text) from error
            raise
    if process.returncode:
        print(said, file=sys.stderr)
        raise _blamed(go, said)(f"`go build` ended with {process.returncode}: see above")


def _blamed(go: str, said: str) -> type[BuildError]:
    """Whose fault it is that the build failed: that of a machine without room, or that cannot fetch what it needs."""
    if any(word in said for word in WANTING):
        return MachineError
    fetched = subprocess.run([go, "mod", "download"], cwd=MODULE, stderr=subprocess.DEVNULL, check=False)
    return MachineError if fetched.returncode else BuildError


def _keep_stages(go: str, into: Path) -> None:
    """Copy how KWOK lets nodes and pods live, so that running needs no Go."""
    said = subprocess.run(
        [go, "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kwok"], cwd=MODULE, capture_output=True, text=True, check=True
    )
    into.mkdir()
    for stage in STAGES:
        for path in (Path(said.stdout.strip()) / "kustomize" / stage).glob("*.yaml"):
            if path.name != "kustomization.yaml":
                (into / path.name).write_text(path.read_text())


@contextmanager
def _alone() -> Iterator[None]:
    with (BUILDS / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.controlplane.build", description=__doc__)
    parser.add_argument("--limit", type=float, default=60, metavar="MINUTES", help="give up after this (default: 60)")
    minutes = parser.parse_args(arguments).limit
    if is_built():
        print(f"The control plane is built: {folder()}")
        return 0
    print("Building etcd, Kubernetes and KWOK: 7 to 30 minutes the first time", flush=True)
    began = time.monotonic()
    try:
        where = build(minutes * 60)
    except MachineError as error:
        print(f"The control plane cannot be built on this machine. {error}", file=sys.stderr)
        return NOT_HERE
    except BuildError as error:
        print(f"The control plane cannot be built. {error}", file=sys.stderr)
        return 1
    print(f"Built in {time.monotonic() - began:.0f} s: {where}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
