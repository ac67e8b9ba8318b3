"""What the screens are written to: it outlives its terminal, so that the console can end in order without one."""

from contextlib import suppress
from typing import IO, Any


class LastingOutput:
    """Passes everything on to a file, and drops what a terminal that was closed does not take any more.

    Textual's writer is a thread that ends with the first error; whoever puts more into its full queue waits for ever.
    """

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def write(self, text: str) -> int:
        """Write a text, as far as there is somewhere to write it."""
        with suppress(OSError, ValueError):
            self._file.write(text)
        return len(text)

    def flush(self) -> None:
        """Bring to the terminal what was written, as far as there is one."""
        with suppress(OSError, ValueError):
            self._file.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)
