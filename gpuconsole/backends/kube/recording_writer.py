"""Writes a recording of a cluster while it is watched, for bug reports; `ClusterRecording` reads it.

It has the kinds that decide about quota, with redacted objects (`model.document_redaction`). Each line is written at
once, so that nothing is lost if the process is killed.
"""

from typing import Any, BinaryIO

import msgspec

from gpuconsole.backends.kube.backend import KubeBackend
from gpuconsole.backends.kube.decode import ADDED, DELETED, MODIFIED, ObjectChanged, ObjectGone, WatchMessage
from gpuconsole.model.clock import SECOND, Time, format_time
from gpuconsole.model.document_redaction import Document, DocumentRedactor
from gpuconsole.model.manifests.kinds import DECODERS, VERSIONS, table_of
from gpuconsole.model.objects import TABLES
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.config_events import CONFIG_TABLES

_POD, _TOPOLOGY = "Pod", "Topology"
RECORDED = {
    kind: (group, kind)
    for group, kind in DECODERS
    if table_of((group, kind)) in (*CONFIG_TABLES, "pods", "workloads") and group != "kai.scheduler"
}
"""Kind → (API group, kind) of the objects on which Kueue's decisions depend, pods only where there are topologies."""
_TABLES = frozenset(map(table_of, RECORDED.values()))
MOST_BYTES = 500_000_000
"""Size at which a recording ends."""
_JSON = msgspec.json.Encoder()
_PACKED = msgspec.msgpack.Encoder()


class RecordingWriter:
    """Writes the objects of a cluster at one moment, then its changes. Mutates; for one thread."""

    def __init__(self, file: BinaryIO, most_bytes: int = MOST_BYTES) -> None:
        """`file` is empty and has no buffer; the caller closes it."""
        self._file = file
        self._left = most_bytes
        self._most = most_bytes
        self._redactor = DocumentRedactor()
        self._known: dict[tuple[str, str], bytes] = {}
        """Kind and name → the object, until the recording begins; then empty."""
        self._begin: Time | None = None
        self._has_pods = False
        self.changes = 0
        """Number of changes that were written."""
        self.problem = ""
        """Why the recording ended early, as a sentence; empty if it did not."""

    def attach(self, backend: KubeBackend) -> None:
        """Take the messages of a live cluster, which is not open yet."""
        backend.record(self.take, RECORDED.values())

    def take(self, message: WatchMessage) -> None:
        """Note an object, or write a change once the recording has begun."""
        if self.problem or not isinstance(message, ObjectChanged | ObjectGone):
            return
        document = message.document
        if document is None:
            if isinstance(message, ObjectGone) and self._begin is not None and TABLES[message.kind] in _TABLES:
                # What happened between the old and the new list is missing.
                self._end(message.time, message.kind.__name__, f"the watch of {message.kind.__name__} was interrupted")
            return
        kind, meta = document.get("kind", ""), document["metadata"]
        key = kind, f"{meta.get('namespace') or ''}/{meta['name']}"
        is_gone = isinstance(message, ObjectGone)
        if RECORDED.get(kind) is None or (self._begin is not None and kind == _POD and not self._has_pods):
            return
        what = DELETED if is_gone else MODIFIED if key in self._known else ADDED
        if is_gone:
            self._known.pop(key, None)
        else:
            self._known[key] = b"" if self._begin is not None else _PACKED.encode(document)
        if self._begin is None:
            return
        if kind == _TOPOLOGY and not self._has_pods:
            self._end(message.time, _POD, "a topology was added, and pods were not recorded before")
            return
        made = self._redactor.redact(document)
        self._write({"t": self._seconds(message.time), "kind": kind, "type": what, "object": made})
        self.changes += 1

    def begin(self, now: Time, kueue: KueueConfig) -> None:
        """Write the objects so far; `now` is the moment of t = 0, and `kueue` the settings."""
        lists: dict[str, list[Any]] = {kind: [] for kind in RECORDED}
        for (kind, _), packed in self._known.items():
            lists[kind].append(msgspec.msgpack.decode(packed))
        self._known = dict.fromkeys(self._known, b"")
        self._has_pods = bool(lists[_TOPOLOGY])
        if not self._has_pods:
            del lists[_POD]
        self._redactor.note(one for documents in lists.values() for one in documents)
        self._begin = now
        settings = self._redactor.settings(msgspec.json.decode(_JSON.encode(kueue)))
        self._write({"begin": format_time(now), "kueue": settings})
        for kind, documents in lists.items():
            group = RECORDED[kind][0]
            api = documents[0]["apiVersion"] if documents else f"{group}/{VERSIONS[group][-1]}".removeprefix("/")
            self._write({"list": kind, "apiVersion": api, "items": [self._redactor.redact(one) for one in documents]})

    def _seconds(self, time: Time) -> float:
        return (time - (self._begin or 0)) / SECOND

    def _end(self, time: Time, kind: str, problem: str) -> None:
        self._write({"t": self._seconds(time), "lost": kind})
        self.problem = self.problem or f"the recording ended early: {problem}"

    def _write(self, line: Document) -> None:
        if self.problem:
            return
        text = _JSON.encode(line) + b"\n"
        self._left -= len(text)
        if self._left < 0:
            self.problem = f"the recording ended early: it has reached {self._most:,} bytes"
            return
        try:
            left = memoryview(text)
            while left:
                left = left[self._file.write(left) :]
        except OSError as error:
            self.problem = f"the recording ended early: {error.strerror}"
