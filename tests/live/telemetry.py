"""A DCGM exporter that measures nothing, and a real Prometheus that scrapes it, both on loopback."""

import shutil
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import yaml
from msgspec import Struct
from msgspec.structs import replace

from tests.controlplane.build import BUILDS
from tests.live.processes import Program, free_ports

FETCHED = BUILDS.parent / "prometheus" / "usr" / "bin" / "prometheus"
"""Where `.ci/run` unpacks Debian's package."""
INTERVAL = "3s"
"""How often is scraped, and how long a scrape may take: one that took longer would end all series of its target."""
DRIVER = "570.86.15"


class Gpu(Struct, frozen=True, kw_only=True):
    """What is told of one GPU, or of one MIG instance of it."""

    node: str
    index: int
    model: str = "NVIDIA H100 80GB HBM3"
    namespace: str = ""
    pod: str = ""
    container: str = "main"
    profile: str = ""
    """A MIG instance's profile, such as 1g.10gb."""
    instance: int = 0
    utilisation: float = 0.0
    """Percent."""
    sm: float = 0.0
    """Active share of the time, 0 to 1."""
    memory: int = 0
    """MiB used."""
    power: float = 90.0
    temperature: int = 40
    nvlink: float = 0.0
    """MB a second."""
    xid: int = 0
    """The last error code; 0 = none."""

    @property
    def labels(self) -> dict[str, str]:
        told = {
            "gpu": str(self.index),
            "UUID": f"GPU-{self.node}-{self.index}",
            "pci_bus_id": f"00000000:{self.index + 16:02X}:00.0",
            "device": f"nvidia{self.index}",
            "modelName": self.model,
            "Hostname": self.node,
            "DCGM_FI_DRIVER_VERSION": DRIVER,
        }
        if self.profile:
            told |= {"GPU_I_PROFILE": self.profile, "GPU_I_ID": str(self.instance)}
        if self.pod:
            told |= {"container": self.container, "namespace": self.namespace, "pod": self.pod}
        return told

    @property
    def values(self) -> Iterator[tuple[str, float]]:
        """Metrics as DCGM's exporter names them; utilisation and what belongs to the whole GPU not for an instance."""
        yield "DCGM_FI_PROF_GR_ENGINE_ACTIVE", self.sm
        yield "DCGM_FI_PROF_SM_ACTIVE", self.sm
        yield "DCGM_FI_DEV_FB_USED", self.memory
        yield "DCGM_FI_DEV_FB_FREE", 81559 - self.memory
        yield "DCGM_FI_DEV_XID_ERRORS", self.xid
        if not self.profile:
            yield "DCGM_FI_DEV_GPU_UTIL", self.utilisation
            yield "DCGM_FI_DEV_POWER_USAGE", self.power
            yield "DCGM_FI_DEV_GPU_TEMP", self.temperature
            yield "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", self.nvlink


def exposition(gpus: list[Gpu]) -> str:
    """The text that the exporter of a node answers."""
    families: dict[str, list[str]] = {}
    for gpu in gpus:
        labels = ",".join(f'{name}="{value}"' for name, value in gpu.labels.items())
        for name, value in gpu.values:
            families.setdefault(name, []).append(f"{name}{{{labels}}} {value:g}")
    return "".join(f"# HELP {name} .\n# TYPE {name} gauge\n" + "\n".join(v) + "\n" for name, v in families.items())


class Exporter:
    """DCGM's exporter on every node: `/NODE/metrics`. Mutates; use it as a context manager."""

    def __init__(self, gpus: list[Gpu]) -> None:
        self._gpus = {(gpu.node, gpu.index, gpu.instance): gpu for gpu in gpus}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.server_address[1]}"

    @property
    def nodes(self) -> list[str]:
        return list(dict.fromkeys(gpu.node for gpu in self._gpus.values()))

    def change(self, node: str, index: int, instance: int = 0, **what: float) -> None:
        """Measure something else from now on."""
        key = node, index, instance
        self._gpus[key] = replace(self._gpus[key], **what)

    def text(self, node: str) -> str:
        return exposition([gpu for gpu in self._gpus.values() if gpu.node == node])

    def __enter__(self) -> "Exporter":
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def _handler(exporter: Exporter) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            _, node, _, *_ = *self.path.split("/"), ""
            body = exporter.text(node).encode()
            self.send_response(200 if body else 404)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing is printed."""

    return Handler


def prometheus_binary() -> Path | None:
    """Debian's Prometheus, installed or unpacked; None if there is none."""
    installed = shutil.which("prometheus")
    return Path(installed) if installed else FETCHED if FETCHED.exists() else None


def promtool_binary() -> Path | None:
    """Prometheus' own checks of metrics and rules, of the same package; None if there are none."""
    found = prometheus_binary()
    return promtool if found is not None and (promtool := found.with_name("promtool")).exists() else None


class Prometheus:
    """A real Prometheus. Where it finds its targets as pods, what they say of other pods is renamed to exported_…"""

    def __init__(
        self,
        binary: Path,
        folder: Path,
        exporter: Exporter | None = None,
        *,
        as_pods: bool = False,
        config: Mapping[str, object] | None = None,
    ) -> None:
        """It scrapes the exporter, or what a configuration of its own says."""
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        scraping = dict(config or {}) if exporter is None else _scraping(exporter, as_pods)
        config_file = folder / "prometheus.yaml"
        config_file.write_text(yaml.safe_dump(scraping))
        options = {
            "config.file": config_file,
            "storage.tsdb.path": folder / "tsdb",
            "web.listen-address": f"127.0.0.1:{port}",
            "log.level": "warn",
        }
        self.program = Program("prometheus", [str(binary), *(f"--{k}={v}" for k, v in options.items())], folder)

    def __enter__(self) -> "Prometheus":
        self.program.start()
        self.program.wait_until(self._is_ready, 60)
        return self

    def __exit__(self, *_: object) -> None:
        self.program.kill()

    def query(self, text: str) -> list[tuple[Mapping[str, str], float]]:
        """Labels and value of every series now."""
        answer = httpx.get(f"{self.url}/api/v1/query", params={"query": text}, timeout=10, trust_env=False).json()
        return [(one["metric"], float(one["value"][1])) for one in answer["data"]["result"]]

    def _is_ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/-/ready", timeout=2, trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False


def _scraping(exporter: Exporter, as_pods: bool) -> dict[str, object]:
    targets = []
    for number, node in enumerate(exporter.nodes):
        labels = {"__metrics_path__": f"/{node}/metrics", "instance": f"{node}:9400"}
        if as_pods:
            labels |= {"namespace": "gpu-operator", "pod": f"nvidia-dcgm-exporter-{number}", "container": "exporter"}
        targets.append({"targets": [exporter.address], "labels": labels})
    job = {"job_name": "dcgm", "honor_labels": False, "static_configs": targets}
    return {"global": {"scrape_interval": INTERVAL, "scrape_timeout": INTERVAL}, "scrape_configs": [job]}
