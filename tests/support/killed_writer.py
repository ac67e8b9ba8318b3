"""A process that records lines until it is killed, and says how many it gave to the recorder and how many are safe."""

import time
from multiprocessing.connection import Connection
from pathlib import Path

from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.store.recorder import Opening, Recorder

INTERVAL = 0.05
LINES = 10
"""Given to the recorder at once."""


def write_for_ever(path: Path, said: Connection) -> None:
    recorder = Recorder(path, Opening(version="test"), wall=lambda: time.time_ns() // 1_000, interval=INTERVAL)
    n = 0
    while True:
        lines = [
            HistoryEvent(time=n + i, what=HistoryEventKind.SUBMITTED, workload=f"team/job-{n + i}")
            for i in range(LINES)
        ]
        recorder.record(lines)
        n += len(lines)
        said.send((n, n - len(recorder.unflushed())))
        time.sleep(0.002)
