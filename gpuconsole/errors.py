"""The exceptions of the console. Each message says what the user can do; only `cli` and the app show them.

ConsoleError                exit status 2: there is no answer
├── UsageError              wrong arguments or settings
│   ├── SourceError         a file that cannot be used: `FILE:LINE: problem`
│   ├── ConfigError         a setting that cannot be used, with its origin (file, environment, option)
│   └── NotSupportedError   a source or mode that is not supported
├── ReadOnlyError           a change in a read-only console
├── ClusterError            the API server of a live cluster is unreachable, or rejects a request
├── UnseenError             RBAC forbids reading what an answer depends on
├── TelemetryError          a source of telemetry is unreachable, or its response is unusable
├── HistoryError            the history in SQLite cannot be opened, read or written
│   └── DamagedHistoryError a part of the history cannot be read
├── WorkerError             the worker process did not start, died, or timed out
└── InputError              exit status 1: the input has errors
"""


class ConsoleError(Exception):
    """An error that the user can resolve. `status` is the exit status of a command that it ends."""

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


class DamagedHistoryError(HistoryError):
    pass


class WorkerError(ConsoleError):
    pass


class InputError(ConsoleError):
    """The input has errors, one per line."""

    status = 1
