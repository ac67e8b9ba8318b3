"""A Prometheus that is a function: series in the exporter's words, asked by the queries that are sent to it."""

import re
from collections.abc import Callable, Mapping

import httpx
import msgspec
from msgspec import Struct

from gpuconsole.backends.telemetry.http import Http, HttpAccess

NOW = 1_760_000_000_000_000
SCRAPED = 1_759_999_990
H100 = {
    "gpu": "0",
    "UUID": "GPU-6f0c",
    "pci_bus_id": "00000000:10:00.0",
    "device": "nvidia0",
    "modelName": "NVIDIA H100 80GB HBM3",
    "Hostname": "gpu-a",
    "DCGM_FI_DRIVER_VERSION": "570.86.15",
    "instance": "10.0.0.7:9400",
    "job": "dcgm",
}
_MAX = re.compile(r"^max by \(([^)]*)\) \((timestamp\()?(\w+)\)?\)$")


class Series(Struct, frozen=True):
    metric: str
    labels: Mapping[str, str]
    value: str
    scraped: float = SCRAPED


def series(metric: str, value: str, **labels: str) -> Series:
    """One of the GPU 0 of node gpu-a, but for the labels that are said; an empty one is left out."""
    return Series(metric, {name: text for name, text in {**H100, **labels}.items() if text}, value)


class FakePrometheus:
    """Answers `max by (…) (metric)` and its timestamps as a real one does; anything else has no series."""

    def __init__(self, *known: Series) -> None:
        self.known = list(known)
        self.queries: list[str] = []
        self.instead: Callable[[str], httpx.Response | None] = lambda query: None

    @property
    def http(self) -> Http:
        return Http("http://user:secret@prometheus:9090/", HttpAccess(), httpx.MockTransport(self.answer))

    def answer(self, request: httpx.Request) -> httpx.Response:
        query = request.url.params.get("query", "")
        self.queries.append(query)
        return self.instead(query) or vector(self._found(query))

    def _found(self, query: str) -> list[tuple[Mapping[str, str], str]]:
        match = _MAX.match(query)
        if match is None:
            return []
        by = match[1].split(", ")
        groups: dict[tuple[tuple[str, str], ...], str] = {}
        for one in self.known:
            if one.metric == match[3]:
                kept = tuple((name, one.labels[name]) for name in by if name in one.labels)
                value = str(one.scraped) if match[2] else one.value
                groups[kept] = max(groups.get(kept, value), value, key=float)
        return [(dict(labels), value) for labels, value in groups.items()]


def vector(found: list[tuple[Mapping[str, str], str]]) -> httpx.Response:
    result = [{"metric": labels, "value": [NOW / 1e6, value]} for labels, value in found]
    return httpx.Response(
        200,
        content=msgspec.json.encode({"status": "success", "data": {"resultType": "vector", "result": result}}),
        headers={"Content-Type": "application/json"},
    )
