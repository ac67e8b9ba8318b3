"""Output that survives the loss of its terminal, so that the console can shut down cleanly."""

from contextlib import suppress
from typing import IO, Any


class LastingOutput:
    """Writes to a file, and drops output after the terminal was closed.

    Textual's writer is a thread that ends with the first error; writers to its full queue then block forever.
    """

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def write(self, text: str) -> int:
        """Write a text, unless the terminal is gone."""
        with suppress(OSError, ValueError):
            self._file.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush to the terminal, unless it is gone."""
        with suppress(OSError, ValueError):
            self._file.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)
