"""What an API server holds of some kinds, as it changes: a LIST and a watch of each, in threads of their own."""

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue

import httpx
import msgspec
from msgspec import Struct

from tests.live.api import Api, Manifest, Refused

PAUSE = 0.3
"""Seconds until a watch that ended is begun anew."""


class Change(Struct, frozen=True):
    """An object as it is now; `gone` says that this was its last form."""

    thing: Manifest
    gone: bool = False


class Mirror:
    """Tells every change of the kinds at these paths, beginning with all that exists. Mutates."""

    def __init__(self, api: Api, paths: Sequence[str]) -> None:
        self._api = api
        self._changes: SimpleQueue[Change] = SimpleQueue()
        self._stopped = threading.Event()
        self._listed = {path: threading.Event() for path in paths}
        self._threads = [threading.Thread(target=self._follow, args=(path,), daemon=True) for path in paths]

    def start(self) -> None:
        """Begin, and wait until everything was listed once."""
        for thread in self._threads:
            thread.start()
        for listed in self._listed.values():
            assert listed.wait(30), "the API server does not list what the stand-in needs"

    def stop(self) -> None:
        self._stopped.set()

    def changes(self, patience: float) -> list[Change]:
        """What changed since the last call; waits up to `patience` seconds for the first change."""
        found: list[Change] = []
        with suppress(Empty):
            found.append(self._changes.get(timeout=patience))
            while True:
                found.append(self._changes.get_nowait())
        return found

    def _follow(self, path: str) -> None:
        known: dict[str, Manifest] = {}
        while not self._stopped.is_set():
            # Also what the last words of a server that dies look like.
            with suppress(httpx.HTTPError, Refused, msgspec.DecodeError, RuntimeError):
                self._list_and_watch(path, known)
            time.sleep(PAUSE)

    def _list_and_watch(self, path: str, known: dict[str, Manifest]) -> None:
        answer = self._api.get(path)
        kind, version = answer["kind"].removesuffix("List"), answer["apiVersion"]
        there = {thing["metadata"]["uid"]: thing | {"kind": kind, "apiVersion": version} for thing in answer["items"]}
        for uid in [uid for uid in known if uid not in there]:
            self._changes.put(Change(known.pop(uid), gone=True))
        for uid, thing in there.items():
            self._tell(known, uid, thing)
        self._listed[path].set()
        for what, thing in self._api.watch(path, answer["metadata"]["resourceVersion"]):
            if self._stopped.is_set() or what == "ERROR":
                return
            if what == "DELETED":
                known.pop(thing["metadata"]["uid"], None)
                self._changes.put(Change(thing, gone=True))
            elif what != "BOOKMARK":
                self._tell(known, thing["metadata"]["uid"], thing)

    def _tell(self, known: dict[str, Manifest], uid: str, thing: Manifest) -> None:
        known[uid] = thing
        self._changes.put(Change(thing))
