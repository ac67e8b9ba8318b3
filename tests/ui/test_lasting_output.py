"""A terminal that is closed takes no more, and holds nobody up."""

import os
import threading

from textual.drivers._writer_thread import MAX_QUEUED_WRITES, WriterThread

from gpuconsole.ui.textual_patches import LastingOutput


def test_what_a_closed_terminal_does_not_take_is_dropped_and_the_writer_ends() -> None:
    terminal, console = os.openpty()
    with os.fdopen(console, "w") as file:
        writer = WriterThread(LastingOutput(file))  # type: ignore[arg-type]
        writer.start()
        os.close(terminal)

        def write_and_stop() -> None:
            for _ in range(3 * MAX_QUEUED_WRITES):
                writer.write("x" * 1000)
            writer.stop()

        thread = threading.Thread(target=write_and_stop, daemon=True)
        thread.start()
        thread.join(10)
        assert not thread.is_alive()
        os.dup2(os.open(os.devnull, os.O_WRONLY), file.fileno())


def test_everything_else_is_that_of_the_file() -> None:
    with open(os.devnull, "w") as file:
        assert LastingOutput(file).fileno() == file.fileno()
