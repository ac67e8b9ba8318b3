"""Telemetry of DCGM exporters: direct requests to them, and grouping of samples by node and device.

`Exporters` sends one request per node, several at a time. `Gathering` makes telemetry columns of samples, also of those
from a Prometheus. Metrics and labels are those of dcgm-exporter 4.5. A Prometheus that discovers the exporters as pods
renames some labels: `pod` is the exporter's own pod then, and `exported_pod` the one that uses the GPU.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import isfinite

from msgspec import Struct

from gpuconsole.backends.telemetry.feed import Scrape
from gpuconsole.backends.telemetry.http import Http, HttpAccess, checked, series, shown
from gpuconsole.errors import TelemetryError
from gpuconsole.model.clock import Span, Time
from gpuconsole.model.telemetry import GpuMetric, MeasuredDevice, NodeTelemetry
from gpuconsole.model.text import clean

METRICS: Mapping[str, GpuMetric] = {
    "DCGM_FI_DEV_FB_USED": GpuMetric.MEMORY_USED,
    "DCGM_FI_DEV_GPU_TEMP": GpuMetric.TEMPERATURE,
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": GpuMetric.ACTIVE,
    "DCGM_FI_DEV_GPU_UTIL": GpuMetric.UTILISATION,
    "DCGM_FI_DEV_FB_FREE": GpuMetric.MEMORY_FREE,
    "DCGM_FI_PROF_SM_ACTIVE": GpuMetric.SM,
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": GpuMetric.TENSOR,
    "DCGM_FI_PROF_DRAM_ACTIVE": GpuMetric.DRAM,
    "DCGM_FI_DEV_POWER_USAGE": GpuMetric.POWER,
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": GpuMetric.NVLINK,
    "DCGM_FI_PROF_PCIE_TX_BYTES": GpuMetric.PCIE_TX,
    "DCGM_FI_PROF_PCIE_RX_BYTES": GpuMetric.PCIE_RX,
    "DCGM_FI_DEV_SM_CLOCK": GpuMetric.CLOCK,
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": GpuMetric.THROTTLE,
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": GpuMetric.THROTTLE,
    "DCGM_FI_DEV_XID_ERRORS": GpuMetric.XID,
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": GpuMetric.ECC_DOUBLE,
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": GpuMetric.REMAPPED_ROWS,
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": GpuMetric.REMAP_FAILURE,
}
"""DCGM field → our metric. The first ones are always exported, also for MIG instances, so they show all devices."""
NODE_LABELS = ("node", "kubernetes_node", "Hostname", "hostname", "exported_node")
"""Labels of a series that may name its node."""
DEVICE_LABELS = ("gpu", "device", "GPU_I_ID")
ABOUT_LABELS = (
    *("UUID", "modelName", "GPU_I_PROFILE"),
    *("pod", "namespace", "container", "exported_pod", "exported_namespace", "exported_container"),
)
_WIDE = (GpuMetric.NVLINK, GpuMetric.PCIE_TX, GpuMetric.PCIE_RX, GpuMetric.THROTTLE)
_BLANK = 2_147_483_632
"""DCGM's 32-bit values from here on are reasons why there is no value; the 64-bit ones are larger still."""
_WIDE_BLANK = 140_737_488_355_328
MOST_DEVICES = 1024
MOST_NODES = 100_000

Labels = Mapping[str, str]


class MetricSample(Struct, frozen=True):
    """A GPU metric with its labels and newest value."""

    measure: GpuMetric
    labels: Labels
    value: float


def number(measure: GpuMetric, value: float) -> float | None:
    """Return the value if it is valid, else None: for NaN, infinity, a negative number or a DCGM blank."""
    if not isfinite(value) or value < 0:
        return None
    return None if value >= (_WIDE_BLANK if measure in _WIDE else _BLANK) else value


def node_of(labels: Labels, known: Callable[[str], bool]) -> str:
    """Return the node of a series: from the label that names a known node, else the exporter's own host name."""
    said = [labels[name] for name in NODE_LABELS if labels.get(name)]
    said.append(labels.get("instance", "").rpartition(":")[0])
    for name in said:
        for form in (name, name.partition(".")[0]):
            if form and known(form):
                return form
    return clean(labels.get("Hostname") or labels.get("hostname") or next((name for name in said if name), ""), 253)


def place_of(labels: Labels) -> tuple[int, int] | None:
    """Return the GPU index and MIG instance (-1: a whole GPU) of a series; None if its labels are unusable."""
    gpu = _count(labels.get("gpu", ""))
    if gpu is None:
        gpu = _count(labels.get("device", "").removeprefix("nvidia"))
    instance = _count(labels["GPU_I_ID"]) if labels.get("GPU_I_ID") else -1
    return None if gpu is None or instance is None else (gpu, instance)


def _count(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 4 else None


def _pod_of(labels: Labels, renamed: bool) -> tuple[str, str]:
    """Return (`namespace/name`, container) of the pod that holds the device; empty if the labels name none."""
    prefix = "exported_" if renamed else ""
    pod, container = labels.get(f"{prefix}pod", ""), labels.get(f"{prefix}container", "")
    namespace = labels.get(f"{prefix}namespace", "")
    if not pod or not namespace or (not renamed and "dcgm-exporter" in pod):
        return "", ""
    return clean(f"{namespace}/{pod}", 320), clean(container, 63)


class _Node:
    """Devices and values of one node, while they are collected."""

    def __init__(self) -> None:
        self.about: dict[tuple[int, int], Labels] = {}
        self.values: dict[GpuMetric, dict[tuple[int, int], float]] = {}


class Gathering:
    """Collects the samples of one poll, by node. Mutable."""

    def __init__(self, known: Callable[[str], bool]) -> None:
        self._known = known
        self._nodes: dict[str, _Node] = {}
        self._renamed = False
        self.unusable = 0
        """Number of series without a node or a GPU."""

    def add(self, sample: MetricSample, node: str = "") -> None:
        """Add one series; `node` names its node if its labels do not."""
        labels = sample.labels
        name = node_of(labels, self._known)
        name = node if node and not self._known(name) else name
        place = place_of(labels)
        if not name or place is None or (name not in self._nodes and len(self._nodes) >= MOST_NODES):
            self.unusable += 1
            return
        found = self._nodes.setdefault(name, _Node())
        if place not in found.about and len(found.about) >= MOST_DEVICES:
            self.unusable += 1
            return
        self._renamed = self._renamed or "exported_pod" in labels
        about = found.about.get(place)
        # Of several pods that share a GPU, always the same one is shown.
        if about is None or len(labels) > len(about) or (len(labels) == len(about) and _order(labels) < _order(about)):
            found.about[place] = labels
        value = number(sample.measure, sample.value)
        if value is not None:
            column = found.values.setdefault(sample.measure, {})
            column[place] = max(value, column.get(place, 0.0))

    def nodes(self, time: Callable[[str], Time], source: str, lasts: Span) -> Iterable[NodeTelemetry]:
        """Return the telemetry of each node: `time` gives its sample time, `lasts` is how long its values are fresh."""
        for name, found in self._nodes.items():
            places = sorted(found.about)
            yield NodeTelemetry(
                name=name,
                time=time(name),
                source=source,
                lasts=lasts,
                devices=tuple(self._device(place, found.about[place]) for place in places),
                columns={
                    measure: tuple(column.get(place) for place in places)
                    for measure, column in sorted(found.values.items())
                },
            )

    def _device(self, place: tuple[int, int], labels: Labels) -> MeasuredDevice:
        pod, container = _pod_of(labels, self._renamed)
        return MeasuredDevice(
            gpu=place[0],
            instance=place[1],
            profile=clean(labels.get("GPU_I_PROFILE", ""), 32),
            uuid=clean(labels.get("UUID", ""), 96),
            model=clean(labels.get("modelName", ""), 96),
            pod=pod,
            container=container,
        )


def _order(labels: Labels) -> tuple[str, str]:
    return labels.get("exported_pod", ""), labels.get("pod", "")


AT_ONCE = 8
"""Maximum number of requests at the same time."""
NODE = "{node}"
"""Placeholder for a node's name in an exporter's URL."""
PATH = "/metrics"


class Exporters:
    """Exporters by URL; a URL with `{node}` is expanded for every GPU node. Keeps its connections."""

    def __init__(
        self,
        urls: Sequence[str],
        nodes: Callable[[], Iterable[str]],
        *,
        access: HttpAccess | None = None,
        budget: Callable[[], None] = lambda: None,
        open_http: Callable[[str, HttpAccess | None], Http] = Http,
    ) -> None:
        """Raises UsageError if a URL is invalid."""
        for url in urls:
            checked(url.replace(NODE, "node"))
        self._urls = tuple(urls)
        self._nodes = nodes
        self._access = access
        self._budget = budget
        self._open = open_http
        self._known: dict[str, Http] = {}
        self.address = ", ".join(shown(url) for url in urls[:2]) + (" …" if len(urls) > 2 else "")

    def read(self, known: Callable[[str], bool], now: Time, lasts: Span) -> Scrape:
        """Query all exporters. Raises TelemetryError if none can be read, or none has DCGM metrics."""
        wanted = list(self._wanted())
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="telemetry") as pool:
            answers = list(pool.map(lambda pair: self._text(*pair), wanted))
        gathering, troubles, sources = Gathering(known), list[str](), 0
        for (_, node), (text, trouble) in zip(wanted, answers, strict=True):
            if trouble:
                troubles.append(trouble)
                continue
            sources += 1
            for name, labels, value in series(text, METRICS):
                gathering.add(MetricSample(METRICS[name], labels, value), node)
        if wanted and not sources:
            more = f", and {len(wanted) - 1} more" if len(wanted) > 1 else ""
            raise TelemetryError(f"{troubles[0]}{more}")
        found = tuple(gathering.nodes(lambda _: now, self.address, lasts))
        if sources and not found:
            raise TelemetryError(f"{self.address}: no DCGM metrics (DCGM_FI_…) at this address")
        return Scrape(found, tuple(troubles), gathering.unusable)

    def close(self) -> None:
        """Close the connections."""
        for http in self._known.values():
            http.close()

    def _wanted(self) -> Iterable[tuple[str, str]]:
        """Yield (URL, node if the URL contains it)."""
        for url in self._urls:
            if NODE in url:
                yield from ((url.replace(NODE, node), node) for node in self._nodes())
            else:
                yield url, ""

    def _text(self, url: str, node: str) -> tuple[str, str]:
        """Return (text, error)."""
        http = self._known.get(url)
        if http is None:
            http = self._known[url] = self._open(url.removesuffix(PATH), self._access)
        try:
            self._budget()
            return http.get(PATH, {}).decode(errors="replace"), ""
        except TelemetryError as error:
            return "", str(error)
