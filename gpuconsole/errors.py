"""The error tree. Each error tells the user's next step; only `cli` and the app render them.

ConsoleError                exit status 2: there is no answer
├── UsageError              what was asked for cannot be done as it was asked
│   ├── SourceError         a file: `FILE:LINE: problem`
│   ├── ConfigError         a setting, with where it came from (file, environment, option)
│   └── NotSupportedError   a source or a mode that this version does not have
├── ReadOnlyError           a change was asked of a console that only looks
├── ClusterError            the API server of a live cluster cannot be reached, or says no
├── UnseenError             an answer rests on what may not be read of a cluster
├── TelemetryError          a source of telemetry does not answer, or not with what is wanted
├── HistoryError            the history in SQLite cannot be opened, read or written
├── WorkerError             the worker process did not start, died, or did not answer
└── InputError              exit status 1, as where an answer finds fault: files that were read, and have errors
"""


class ConsoleError(Exception):
    """Something that the user can do something about. `status` is the exit status of the process."""

    status = 2


class UsageError(ConsoleError):
    pass


class SourceError(UsageError):
    """A file that cannot be used. `line` counts from 1; 0 = the file as a whole."""

    def __init__(self, file: str, problem: str, line: int = 0) -> None:
        super().__init__(f"{file}:{line}: {problem}" if line else f"{file}: {problem}")
        self.file = file
        self.line = line
        self.problem = problem


class ConfigError(UsageError):
    """A setting that cannot be used. `origin` is a file, an environment variable or an option."""

    def __init__(self, origin: str, problem: str) -> None:
        super().__init__(f"{origin}: {problem}")
        self.origin = origin
        self.problem = problem


class NotSupportedError(UsageError):
    pass


class ReadOnlyError(ConsoleError):
    pass


class ClusterError(ConsoleError):
    pass


class UnseenError(ConsoleError):
    pass


class TelemetryError(ConsoleError):
    pass


class HistoryError(ConsoleError):
    pass


class WorkerError(ConsoleError):
    pass


class InputError(ConsoleError):
    """Files have errors; each is a line."""

    status = 1
