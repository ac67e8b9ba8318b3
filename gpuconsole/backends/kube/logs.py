"""Logs of pods: one thread per container follows them; the newest lines are kept, failures become lines."""

import logging
import re
import threading
from collections import deque
from collections.abc import Sequence
from urllib.parse import quote

from gpuconsole.backends.kube.client import ApiServerConnection, Query, ResponseStream
from gpuconsole.backends.kube.errors import Refused
from gpuconsole.backends.object_access import LogLine
from gpuconsole.errors import ClusterError
from gpuconsole.model.text import clean

LOG = logging.getLogger(__name__)
KEPT = 2_000
"""Most lines of all pods together."""
WIDEST = 1_000
"""Most characters of a line."""
FIRST = 200
"""Number of earlier lines that are read from each container."""
PODS = 32
"""Most pods whose logs are read at once: each needs a connection."""
LATER = 2.0
"""Seconds until a container that has not started is tried again."""
SILENCE = 3_600.0
_CHOICE = re.compile(r"choose one of: \[([^\]]*)\]")
_WAITING = ("ContainerCreating", "PodInitializing", "is waiting to start", "not found for pod", "does not have a host")


class KubeLogs:
    """Follows the logs of some pods until it is closed. Thread-safe."""

    def __init__(self, connection: ApiServerConnection, pods: Sequence[str], *, previous: bool) -> None:
        self._connection = connection
        self._previous = previous
        self._lines: deque[LogLine] = deque(maxlen=KEPT)
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._streams: set[ResponseStream] = set()
        self.count = 0
        for pod in pods[:PODS]:
            self._thread(pod, "")
        if len(pods) > PODS:
            self._say("", f"{len(pods) - PODS} more pods are not shown; the limit is {PODS}")

    @property
    def lines(self) -> Sequence[LogLine]:
        """The newest lines, oldest first."""
        with self._lock:
            return tuple(self._lines)

    @property
    def closed(self) -> bool:
        """True after `close`."""
        return self._stopped.is_set()

    def close(self) -> None:
        """Stop following the logs."""
        self._stopped.set()
        with self._lock:
            streams = tuple(self._streams)
        for stream in streams:
            stream.close()

    def _thread(self, pod: str, container: str) -> None:
        threading.Thread(target=self._read, args=(pod, container), name=f"kube logs {pod}", daemon=True).start()

    def _read(self, pod: str, container: str) -> None:
        """Follow one container's log until it ends. Never raises."""
        try:
            while not self._stopped.is_set() and not self._once(pod, container):
                self._stopped.wait(LATER)
        except ClusterError as error:
            if not self._stopped.is_set():
                self._say(pod, error.message if isinstance(error, Refused) else str(error))
        except Exception as error:
            if not self._stopped.is_set():
                LOG.exception("Logs of %s", pod)
                self._say(pod, repr(error))

    def _once(self, pod: str, container: str) -> bool:
        """Read a log to its end; False if the container has not started yet. Raises ClusterError."""
        namespace, _, name = pod.partition("/")
        path = f"/api/v1/namespaces/{quote(namespace)}/pods/{quote(name)}/log"
        query: Query = {
            "tailLines": FIRST,
            **({"container": container} if container else {}),
            **({"previous": "true"} if self._previous else {"follow": "true"}),
        }
        try:
            with self._connection.stream(path, query, patience=SILENCE) as stream:
                self._follow(stream, pod, container)
        except Refused as error:
            if (choice := _CHOICE.search(error.message)) and not container:
                for one in choice[1].split():
                    self._thread(pod, one)
                return True
            if not self._previous and any(words in error.message for words in _WAITING):
                return False
            raise
        if not self._stopped.is_set():
            self._say(pod, "no previous logs" if self._previous and not self.count else "container terminated")
        return True

    def _follow(self, stream: ResponseStream, pod: str, container: str) -> None:
        with self._lock:
            self._streams.add(stream)
        try:
            for lines in stream.lines():
                if self._stopped.is_set():
                    return
                self._take(pod, container, lines)
        finally:
            with self._lock:
                self._streams.discard(stream)

    def _take(self, pod: str, container: str, lines: Sequence[bytes]) -> None:
        name = f"{pod} {container}".strip()
        # Tabs are expanded; other control characters are made visible.
        texts = (line[: 4 * WIDEST].decode(errors="replace").rstrip("\r").expandtabs(4) for line in lines[-KEPT:])
        made = [LogLine(name, clean(text, WIDEST)) for text in texts]
        with self._lock:
            self._lines.extend(made)
            self.count += len(lines)

    def _say(self, pod: str, text: str) -> None:
        with self._lock:
            self._lines.append(LogLine(pod, clean(text, WIDEST), ours=True))
            self.count += 1
