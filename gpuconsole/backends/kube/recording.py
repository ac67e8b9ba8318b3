"""Recordings of a live cluster: reads a file with the lists and the watch events of each kind.

A recording is JSON lines, plain or compressed with gzip: first one line for each kind,
`{"list": KIND, "resourceVersion": …, "items": […]}`, then a line for each watch event in the order of arrival,
`{"t": seconds since the begin, "kind": KIND, "type": ADDED|MODIFIED|DELETED, "object": {…}}`. A line
`{"t": …, "lost": KIND}` says that the watch of a kind ended.

A recording of `RecordingWriter` begins with a line `{"begin": time of t = 0, "kueue": settings of Kueue}`. Its events
are in the order in which the shadow followed them, and are replayed in it.
"""

import gzip
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Struct

from gpuconsole.backends.kube.decode import DELETED, Decoder, ObjectChanged, ObjectGone, WatchMessage
from gpuconsole.backends.kube.discovery import Served
from gpuconsole.backends.kube.events import OwnerJoin
from gpuconsole.errors import SourceError
from gpuconsole.model.clock import SECOND, Time, parse_time
from gpuconsole.model.events import Applied, Deleted, Event
from gpuconsole.model.objects import Object
from gpuconsole.scheduling.kueue.config import KueueConfig

_KUEUE = ("kueue.x-k8s.io", "v1beta2")
"""Group and version of Kueue's kinds, where the file does not have them."""
_APIS = {"Job": ("batch", "v1"), "Namespace": ("", "v1"), "Node": ("", "v1"), "Pod": ("", "v1")}
"""Group and version of the kinds that are not Kueue's."""


class _RecordedLine(Struct):
    """A line: when the recording began, a list of a kind, a watch event, or the end of a watch."""

    begin: str = ""
    kueue: KueueConfig | None = None
    apiVersion: str = ""
    t: float = 0
    kind: str = ""
    type: str = ""
    object: msgspec.Raw = msgspec.Raw(b"null")
    list: str = ""
    items: tuple[msgspec.Raw, ...] = ()
    lost: str = ""


class _Metadata(Struct, frozen=True):
    creationTimestamp: str = ""
    resourceVersion: str = ""


class _FairSharing(Struct, frozen=True):
    """Its presence says enough."""


class _ClusterQueueStatus(Struct, frozen=True):
    fairSharing: _FairSharing | None = None


class _Object(Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    status: _ClusterQueueStatus | None = None


class RecordedChange(NamedTuple):
    """A change of the recorded cluster, and when it was observed."""

    time: Time
    event: Applied | Deleted


class ClusterRecording:
    """A recorded cluster: its objects at the begin, then change after change."""

    def __init__(self, path: Path, record: Callable[[WatchMessage], None] | None = None) -> None:
        """Read the file. Raises SourceError with the line that cannot be read.

        `record` gets each message as it is followed, with its document.
        """
        self._path = path
        self._record = record
        lines = list(_lines(path))
        self._listed = [(number, line) for number, line in lines if line.list]
        events = [(number, line) for number, line in lines if line.kind]
        if not self._listed:
            raise SourceError(str(path), 'no recording: it has no line with the list of a kind ({"list": …})')
        self.lost = next((line.lost for _, line in lines if line.lost), "")
        """The first kind whose watch ended early; changes after that are left out. Empty if there is none."""
        end = next((line.t for _, line in lines if line.lost), None)
        self._events = [(number, line) for number, line in events if end is None or line.t <= end]
        self._joiner = OwnerJoin()
        self._decoders: dict[str, Decoder] = {}
        read = [(line, self._decode(number, line.object)) for number, line in self._events]
        first = next((line for _, line in lines if line.begin), None)
        self.begin: Time = max(
            (
                parse_time(found.metadata.creationTimestamp) - int(line.t * SECOND)
                for line, found in read
                if line.type == "ADDED" and found.metadata.creationTimestamp
            ),
            default=0,
        )
        """The moment of t = 0. Where the file does not have it, creation times tell it, which are whole seconds."""
        self.kueue = first.kueue if first is not None else None
        """Settings of the recorded Kueue; None if the file does not have them."""
        self.has_fair_sharing = any(
            found.status is not None and found.status.fairSharing is not None
            for line, found in read
            if line.kind == "ClusterQueue"
        )
        """True if Kueue reported weighted shares in the status of ClusterQueues, as it does with fair sharing only."""
        if first is not None:
            self.begin = self._time(first.begin)
            return
        versions = [found.metadata.resourceVersion for _, found in read]
        if all(version.isdecimal() for version in versions):
            # One etcd orders the changes of all kinds; their watches deliver them slightly out of that order.
            order = sorted(range(len(versions)), key=lambda place: int(versions[place]))
            self._events = [self._events[place] for place in order]

    def objects(self) -> list[Object]:
        """Return the objects at the begin. Call it before `changes`. Raises SourceError."""
        found: dict[tuple[str, str], Object] = {}
        for number, line in self._listed:
            keeps = self._record is not None
            served = _served(line.list, line.apiVersion)
            decoder = self._decoders[line.list] = Decoder(served, self._joiner.known, keeps_documents=keeps)
            for raw in line.items:
                item = decoder.item(raw, self.begin)
                if item.obj is None:
                    raise SourceError(str(self._path), f"an item of kind {line.list} cannot be read", number)
                for event in self._taken(ObjectChanged(self.begin, item.obj, listed=True, document=item.document)):
                    if isinstance(event, Applied):
                        found[event.table, event.key] = event.object
        return list(found.values())

    def changes(self) -> Iterator[RecordedChange]:
        """Yield the changes after the begin, in their order. Raises SourceError."""
        for number, line in self._events:
            if line.kind not in self._decoders:
                raise SourceError(str(self._path), f"kind {line.kind} has no list before its events", number)
            now = self.begin + round(line.t * SECOND)
            item = self._decoders[line.kind].item(line.object, now)
            if item.obj is None:
                continue
            message: WatchMessage = ObjectChanged(now, item.obj, document=item.document)
            if line.type == DELETED:
                message = ObjectGone(now, type(item.obj), item.key, item.document)
            for event in self._taken(message):
                if isinstance(event, Applied | Deleted):
                    yield RecordedChange(now, event)

    def _taken(self, message: WatchMessage) -> list[Event]:
        if self._record is not None:
            self._record(message)
        return self._joiner.take(message)

    def _time(self, text: str) -> Time:
        try:
            return parse_time(text)
        except ValueError as error:
            raise SourceError(str(self._path), f"begin: {error}", 1) from error

    def _decode(self, number: int, raw: msgspec.Raw) -> _Object:
        try:
            return msgspec.json.decode(raw, type=_Object)
        except msgspec.MsgspecError as error:
            raise SourceError(str(self._path), f"object: {error}", number) from error


def _lines(path: Path) -> Iterator[tuple[int, _RecordedLine]]:
    """Yield the lines of a recording with their numbers, from 1."""
    decoder = msgspec.json.Decoder(_RecordedLine)
    try:
        with path.open("rb") as raw:
            compressed = raw.read(2) == b"\x1f\x8b"
        with gzip.open(path) if compressed else path.open("rb") as file:
            for number, text in enumerate(file, start=1):
                try:
                    yield number, decoder.decode(text)
                except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                    if number > 1 and not text.endswith(b"\n"):
                        return  # The last line was cut off when the recorder was killed.
                    raise SourceError(str(path), f"not a line of a recording: {error}", number) from error
    except (OSError, EOFError, zlib.error) as error:
        raise SourceError(str(path), f"cannot be read: {error}") from error


def _served(kind: str, api_version: str) -> Served:
    group, _, version = api_version.rpartition("/")
    if not version:
        group, version = _APIS.get(kind, _KUEUE)
    return Served(group=group, version=version, kind=kind, plural="", namespaced=True)
