"""Traces of real clusters: nodes and pods in the format of alibaba-gpu-v2023, and pod streams as in FGD's experiments.

Input size is limited; errors name file and line.
"""

import csv
import gzip
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, TextIO, TypeVar

from msgspec import Struct

from gpuconsole.errors import SourceError
from gpuconsole.scheduling.kube.packing.policies import MILLI, FreeCapacity, PodDemand

MOST_ROWS = 1_000_000
LONGEST_LINE = 4_096
MOST_GPUS = 64
"""Maximum GPUs of a node or a pod."""
LARGEST = 2**40
"""Maximum amount of cpu or memory."""

NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
POD_COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
SPEC = "gpu_spec"
"""An optional column; without it no pod requests a GPU model."""

T = TypeVar("T")
Row = dict[str, str]


class Draws(Protocol):
    """The random generator of a stream: `random.Random`, or another one."""

    def shuffle(self, x: list[Any], /) -> None:
        """Shuffle the list."""

    def randrange(self, start: int, /) -> int:
        """A random number from 0 to this, exclusive."""


class TraceNode(Struct, frozen=True):
    """An empty node."""

    name: str
    room: FreeCapacity


class TracePod(Struct, frozen=True):
    """A pod of a trace."""

    name: str
    demand: PodDemand


def read_nodes(path: Path) -> tuple[TraceNode, ...]:
    """Read a node list (`.csv` or `.csv.gz`). Raises SourceError with file and line."""
    return _read(path, NODE_COLUMNS, _node)


def read_pods(path: Path) -> tuple[TracePod, ...]:
    """Read a pod list (`.csv` or `.csv.gz`). Raises SourceError with file and line."""
    return _read(path, POD_COLUMNS, _pod)


def stream(pods: Sequence[TracePod], capacity: int, ratio: float, chance: Draws) -> list[PodDemand]:
    """Pods in random order, removed or duplicated to reach `ratio` times the capacity in GPU-milli.

    Above it, random pods are removed until the sum is not larger. Below it, copies of random pods are appended until
    the next one would exceed it (TunePodsByNodeTotalResource, which counts only one of the copy's GPUs there).
    """
    demands = [pod.demand for pod in pods]
    chance.shuffle(demands)
    asked, most = sum(demand.total for demand in demands), ratio * capacity
    if not asked:
        return demands
    while asked > most:
        asked -= demands.pop(chance.randrange(len(demands))).total
    if asked == most:
        return demands
    full = False
    while not full:
        copy = pods[chance.randrange(len(pods))].demand
        full = asked + copy.milli > most
        if not full:
            demands.append(copy)
            asked += copy.total
    return demands


def rows(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, Row]]:
    """Lines of a CSV file with a header, by number. Raises SourceError with file, line and error."""
    number = 1
    try:
        with _open(path) as text:
            reader = csv.DictReader(_bounded(path, text), strict=True)
            missing = [name for name in columns if name not in (reader.fieldnames or ())]
            if missing:
                raise SourceError(str(path), f"no column {missing[0]!r}; the header names {', '.join(columns)}", 1)
            for row in reader:
                number = reader.line_num
                if None in row or None in row.values():
                    raise SourceError(
                        str(path), f"it has not the header's {len(reader.fieldnames or ())} fields", number
                    )
                yield number, row
    except OSError as error:
        raise SourceError(str(path), f"it cannot be read: {error.strerror or error}") from error
    except (csv.Error, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise SourceError(str(path), f"invalid CSV: {error}", number) from error


def _read(path: Path, columns: Sequence[str], decode: Callable[[Row], T]) -> tuple[T, ...]:
    objs: list[T] = []
    for number, row in rows(path, columns):
        try:
            objs.append(decode(row))
        except ValueError as error:
            raise SourceError(str(path), str(error), number) from error
    return tuple(objs)


def _open(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8", newline="")
    return path.open(encoding="utf-8", newline="")


def _bounded(path: Path, text: TextIO) -> Iterator[str]:
    """Lines of the file, limited in length and number."""
    for number in range(1, MOST_ROWS + 3):
        line = text.readline(LONGEST_LINE + 1)
        if not line:
            return
        if len(line) > LONGEST_LINE:
            raise SourceError(str(path), f"the line is longer than {LONGEST_LINE} characters", number)
        if number > MOST_ROWS + 1:
            raise SourceError(str(path), f"there are more than {MOST_ROWS} rows", number)
        yield line


def _node(row: Row) -> TraceNode:
    gpus = _number(row, "gpu", MOST_GPUS)
    room = FreeCapacity(
        _number(row, "cpu_milli"), _number(row, "memory_mib"), (MILLI,) * gpus, row["model"] if gpus else ""
    )
    return TraceNode(row["sn"], room)


def _pod(row: Row) -> TracePod:
    gpus = _number(row, "num_gpu", MOST_GPUS)
    milli = _number(row, "gpu_milli", MILLI) if gpus else 0
    if gpus and not milli:
        raise ValueError(f"gpu_milli: {gpus} GPUs of 0 milli; 1000 is a whole one")
    if gpus > 1 and milli < MILLI:
        raise ValueError(f"gpu_milli: {gpus} GPUs of {milli} milli; only a pod with one GPU may share it")
    models = tuple(model for model in row.get(SPEC, "").split("|") if model) if gpus else ()
    cpu, memory = _number(row, "cpu_milli"), _number(row, "memory_mib")
    return TracePod(row["name"], PodDemand(cpu=cpu, memory=memory, gpus=gpus, milli=milli, models=models))


def _number(row: Row, column: str, most: int = LARGEST) -> int:
    text = row[column]
    if not text.isascii() or not text.isdigit() or int(text[:20]) > most:
        raise ValueError(f"{column}: {text[:40]!r} is no number from 0 to {most}")
    return int(text)
