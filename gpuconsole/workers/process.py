"""Main function of the worker process: answers requests until the parent ends."""

import logging
import os
import signal
import sys
from multiprocessing.connection import Connection
from pathlib import Path

from gpuconsole.garbage import collect_by_hand, collect_new
from gpuconsole.workers.protocol import ENCODER, REQUESTS

LESS_URGENT = 5
"""Niceness that is added to the process."""
IDLE = 0.05
"""Seconds without a request after which the process collects garbage and prepares for the next question."""


def serve(pipe: Connection, parents: Connection, log_file: Path | None) -> None:
    """Answer requests from `pipe` until the parent ends. `parents` is the parent's end of it, which is closed here."""
    # Only the parent may hold its end, or its death would not be noticed.
    parents.close()
    # Ctrl-C and a closed terminal go to the whole group; the parent decides when this process ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform != "win32":
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    _write_to(log_file)
    # On machines with few cores the console's response to keys has priority.
    os.nice(LESS_URGENT)
    # Importing the engines takes most of a second, which would slow down the parent while it opens a live cluster.
    from gpuconsole.workers.replica import RequestHandler

    collect_by_hand()
    desk = RequestHandler()
    try:
        while True:
            pipe.send_bytes(ENCODER.encode(desk.reply(REQUESTS.decode(pipe.recv_bytes()))))
            if not pipe.poll(IDLE):
                collect_new()
                while not pipe.poll(0) and desk.prepare_step():
                    pass
    except (EOFError, OSError):
        # The parent ended, or was killed.
        return


def _write_to(log_file: Path | None) -> None:
    """Redirect the output of this process to the log, because the terminal belongs to the console."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    try:
        target = os.open(log_file or os.devnull, flags, 0o600)
    except OSError:
        # Nothing can be written there; the console says so.
        target = os.open(os.devnull, flags)
    os.dup2(target, 1)
    os.dup2(target, 2)
    os.close(target)
    logging.basicConfig(stream=None, level=logging.WARNING)
