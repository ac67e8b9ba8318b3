"""A throw-away control plane on 127.0.0.1: etcd, the API server, its controllers, kube-scheduler, and KWOK's nodes.

`python -m tests.live.controlplane up` starts one to play with, and stops it on Ctrl-C.
"""

import argparse
import contextlib
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import yaml

from tests.controlplane import build
from tests.live import certificates, identities, stock
from tests.live.api import Api, Refused, until
from tests.live.audit import POLICY, AuditLog
from tests.live.definitions import definitions
from tests.live.identities import ADMIN, CONTROLLERS, KWOK, SCHEDULER, SETUP, Identity
from tests.live.processes import NotReady, Program, free_ports
from tests.live.proxy import Proxy

LIMIT = 120.0
"""Seconds that a part has to come up, also on a machine that has much else to do."""
USUAL = ("kueue", "volcano", "jobset")
"""The projects whose kinds exist unless others are named. All of them together take several seconds more."""
ALL_CONTROLLERS = "*"
NO_NODE_LIFECYCLE = "*,-node-lifecycle-controller,-taint-eviction-controller"
"""For thousands of nodes without heartbeats: nobody calls them lost."""


class ControlPlane:
    """A whole control plane in a folder of its own. Mutates; use it as a context manager, or `stop` it."""

    def __init__(
        self, *, projects: Sequence[str] = USUAL, controllers: str = ALL_CONTROLLERS, heartbeats: bool = True
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="controlplane-"))
        self._binaries = build.folder()
        self._projects = projects
        self._controllers = controllers
        self._heartbeats = heartbeats
        self._ports = dict(zip(("etcd", "peer", "api", "controllers", "scheduler", "kwok"), free_ports(6), strict=True))
        self.certificates = certificates.make(self.folder / "certificates")
        self.etcd = self._program("etcd", self._etcd())
        self.apiserver = self._program("kube-apiserver", self._apiserver())
        self.controller_manager = self._program("kube-controller-manager", self._controller_manager())
        self.scheduler = self._program("kube-scheduler", self._scheduler())
        self.kwok = self._program("kwok", self._kwok())
        self._apis: dict[str, Api] = {}

    @property
    def server(self) -> str:
        return f"https://127.0.0.1:{self._ports['api']}"

    @property
    def etcd_url(self) -> str:
        return f"http://127.0.0.1:{self._ports['etcd']}"

    @property
    def kubelet(self) -> int:
        """The port at which KWOK answers for all its nodes."""
        return self._ports["kwok"]

    @property
    def authority(self) -> Path:
        return self.certificates.authority.certificate

    @property
    def audit(self) -> AuditLog:
        return AuditLog(self.folder / "audit.log")

    @property
    def programs(self) -> tuple[Program, ...]:
        return self.etcd, self.apiserver, self.controller_manager, self.scheduler, self.kwok

    def kubeconfig(self, current: Identity = ADMIN, server: str | None = None) -> Path:
        """A kubeconfig with a context for each identity; `server` is a proxy in front of the API server."""
        path = self.folder / f"kubeconfig-{current.name}{'-proxied' if server else ''}"
        path.write_text(identities.kubeconfig(server or self.server, self.authority, current))
        return path

    def kubeconfig_by_plugin(self, token: Path, server: str) -> Path:
        """A kubeconfig whose exec plugin gives what is in a file just then, as tokens that are short-lived come."""
        path = self.folder / f"kubeconfig-plugin-{token.parent.name}"
        path.write_text(identities.kubeconfig_by_plugin(server, self.authority, token))
        return path

    def api(self, who: Identity = SETUP) -> Api:
        """A client of the API server, closed with the control plane."""
        if who.name not in self._apis:
            self._apis[who.name] = Api(self.server, self.authority, who.token)
        return self._apis[who.name]

    def proxy(self) -> Proxy:
        """A proxy in front of the API server, to be entered."""
        return Proxy(("127.0.0.1", self._ports["api"]), str(self.authority), self.certificates.serving)

    def __enter__(self) -> "ControlPlane":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Bring everything up. Raises NotReady if a part does not come; nothing of it runs then."""
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def _start(self) -> None:
        self.etcd.start()
        self.etcd.wait_until(self._etcd_answers, LIMIT)
        self.start_apiserver()
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(self._define, definitions(self._projects)))
        for program in (self.controller_manager, self.scheduler, self.kwok):
            program.start()
        self._wait_for_kinds()
        stock.namespace(self.api(), identities.TEAM)
        self.api().apply(*identities.roles())

    def start_apiserver(self) -> None:
        """Start the API server (again), on the port that it always has, and wait until it is ready."""
        self.apiserver.start()
        self.apiserver.wait_until(self.api().is_ready, LIMIT)

    def restart_apiserver(self) -> None:
        """Kill the API server as a machine that fails does, and bring it up again."""
        self.apiserver.kill()
        self.start_apiserver()

    def stop(self) -> None:
        """Stop what runs, and leave nothing behind. Nothing of it is worth a farewell."""
        for api in self._apis.values():
            api.close()
        for program in reversed(self.programs):
            program.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _define(self, definition: tuple[str, bytes]) -> None:
        try:
            self.api().patiently(
                "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition[1], "application/yaml"
            )
        except Refused as refused:
            if refused.status != 409:
                raise

    def _wait_for_kinds(self) -> None:
        """Every kind can be listed: a fresh one answers 404, then 429, until it has its storage."""
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        for definition in self.api().items(path):
            spec = definition["spec"]
            for version in spec["versions"]:
                kind = f"/apis/{spec['group']}/{version['name']}/{spec['names']['plural']}?limit=1"
                if version["served"]:
                    until(lambda kind=kind: self._can_list(kind), LIMIT)  # type: ignore[misc]

    def _can_list(self, path: str) -> bool:
        return self.api().http.get(path).status_code == 200

    def _etcd_answers(self) -> bool:
        try:
            return httpx.get(f"{self.etcd_url}/health", timeout=2, trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False

    def _program(self, name: str, options: dict[str, object]) -> Program:
        flags = [f"--{option}={value}" for option, value in options.items()]
        return Program(name, [str(self._binaries / name), *flags], self.folder)

    def _write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def _etcd(self) -> dict[str, object]:
        peer = f"http://127.0.0.1:{self._ports['peer']}"
        return {
            "name": "only",
            "data-dir": self.folder / "etcd",
            "listen-client-urls": self.etcd_url,
            "advertise-client-urls": self.etcd_url,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"only={peer}",
            "unsafe-no-fsync": "true",
            "log-level": "error",
            "max-txn-ops": stock.BATCH,
            "max-request-bytes": 64 << 20,
            "quota-backend-bytes": 4 << 30,
        }

    def _apiserver(self) -> dict[str, object]:
        own = self.certificates
        return {
            "etcd-servers": self.etcd_url,
            "bind-address": "127.0.0.1",
            "advertise-address": "127.0.0.1",
            "secure-port": self._ports["api"],
            "endpoint-reconciler-type": "none",
            "tls-cert-file": own.serving.certificate,
            "tls-private-key-file": own.serving.key,
            "client-ca-file": own.authority.certificate,
            "token-auth-file": self._write("tokens.csv", identities.token_file()),
            "authorization-mode": "Node,RBAC",
            "allow-privileged": "true",
            "service-cluster-ip-range": "10.0.0.0/24",
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": own.accounts.certificate,
            "service-account-signing-key-file": own.accounts.key,
            "requestheader-client-ca-file": own.front_authority.certificate,
            "requestheader-allowed-names": "front-proxy-client",
            "requestheader-username-headers": "X-Remote-User",
            "requestheader-group-headers": "X-Remote-Group",
            "requestheader-extra-headers-prefix": "X-Remote-Extra-",
            "proxy-client-cert-file": own.front.certificate,
            "proxy-client-key-file": own.front.key,
            "kubelet-preferred-address-types": "InternalIP",
            "kubelet-certificate-authority": own.authority.certificate,
            "kubelet-client-certificate": own.kubelet_client.certificate,
            "kubelet-client-key": own.kubelet_client.key,
            "audit-policy-file": self._write("audit-policy.yaml", yaml.safe_dump(POLICY)),
            "audit-log-path": self.folder / "audit.log",
            "profiling": "false",
        }

    def _controller_manager(self) -> dict[str, object]:
        own, kubeconfig = self.certificates, self.kubeconfig(CONTROLLERS)
        return {
            "kubeconfig": kubeconfig,
            "authentication-kubeconfig": kubeconfig,
            "authorization-kubeconfig": kubeconfig,
            "bind-address": "127.0.0.1",
            "secure-port": self._ports["controllers"],
            "cert-dir": self.folder / "controllers",
            "leader-elect": "false",
            # Without it RBAC forbids the controllers their work: they look healthy, and nothing happens.
            "use-service-account-credentials": "true",
            "service-account-private-key-file": own.accounts.key,
            "root-ca-file": own.authority.certificate,
            "controllers": self._controllers,
            "profiling": "false",
        }

    def _scheduler(self) -> dict[str, object]:
        kubeconfig = self.kubeconfig(SCHEDULER)
        return {
            "kubeconfig": kubeconfig,
            "authentication-kubeconfig": kubeconfig,
            "authorization-kubeconfig": kubeconfig,
            "bind-address": "127.0.0.1",
            "secure-port": self._ports["scheduler"],
            "cert-dir": self.folder / "scheduler",
            "leader-elect": "false",
            "profiling": "false",
        }

    def _kwok(self) -> dict[str, object]:
        own = self.certificates
        return {
            "kubeconfig": self.kubeconfig(KWOK),
            "config": self._write("kwok.yaml", stock.kwok_configuration(self._binaries / "stages", self.folder)),
            "manage-nodes-with-label-selector": "type=kwok",
            "node-lease-duration-seconds": 40 if self._heartbeats else 0,
            "node-ip": "127.0.0.1",
            "node-port": self._ports["kwok"],
            "server-address": f"127.0.0.1:{self._ports['kwok']}",
            "tls-cert-file": own.serving.certificate,
            "tls-private-key-file": own.serving.key,
        }


@contextlib.contextmanager
def playing(options: argparse.Namespace) -> Iterator[ControlPlane]:
    """A control plane with a few nodes and queues in it."""
    with ControlPlane(projects=options.projects.split(",")) as plane:
        stock.fill(plane.etcd_url, stock.gpu_nodes(options.nodes, kubelet=plane.kubelet))
        yield plane


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.live.controlplane", description=__doc__)
    parser.add_argument("command", choices=["up"], help="start it, and stop it on Ctrl-C")
    parser.add_argument("--nodes", type=int, default=8, help="GPU nodes to begin with (default: 8)")
    parser.add_argument("--projects", default=",".join(USUAL), help="whose kinds exist (default: %(default)s)")
    options = parser.parse_args(arguments)
    if not build.is_built():
        print("The control plane is not built: `make controlplane` does that", file=sys.stderr)
        return 1
    for number in (signal.SIGINT, signal.SIGTERM):
        # Shells start what runs in the background deaf to Ctrl-C.
        signal.signal(number, signal.default_int_handler)
    began = time.monotonic()
    try:
        with playing(options) as plane:
            print(f"Ready after {time.monotonic() - began:.1f} s. export KUBECONFIG={plane.kubeconfig()}", flush=True)
            for program in plane.programs:
                print(f"  {program.name:24} pid {program.pid}  {program.resident >> 20} MB", flush=True)
            with contextlib.suppress(KeyboardInterrupt):
                while True:
                    time.sleep(1)
    except NotReady as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
