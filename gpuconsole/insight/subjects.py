"""Subjects of commands: the keys of the work that they name."""

from collections.abc import Iterable, Iterator

from gpuconsole.model.cluster import Pod
from gpuconsole.model.commands import (
    AnswerCheck,
    Command,
    Copy,
    Later,
    MoveToQueue,
    Requeue,
    Scale,
    SetActive,
    SetPriority,
    Submit,
)
from gpuconsole.model.job import Job
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload


def subjects_of(commands: Iterable[Command], snapshot: Snapshot) -> set[str]:
    """Keys of the workloads (or of jobs and pods without one) that the commands name.

    Only objects of the Snapshot count: a rejected submission has no subject.
    """
    named = {key for command in commands for key in _named(command, snapshot)}
    owners = {key for key in named if key not in snapshot.workloads}
    everybody = snapshot.workloads.all() if owners else ()
    owned = {
        name: workload.key
        for workload in everybody
        for name in (workload.owner, workload.owner.partition("/")[2])
        if name in owners
    }
    return {owned.get(key, key) for key in named if key in owned or is_there(key, snapshot)}


def asks_only_for_work(commands: Iterable[Command]) -> bool:
    """True if the commands only submit or resume work, so that they evict only by preemption."""
    return all(map(_asks_for_work, commands))


def _asks_for_work(command: Command) -> bool:
    match command:
        case Submit(objects):
            return all(isinstance(obj, Workload | Job | Pod) for obj in objects)
        case Copy() | SetActive(_, True) | Requeue() | SetPriority():
            return True
        case Later(_, later):
            return _asks_for_work(later)
        case _:
            return False


def is_there(key: str, snapshot: Snapshot) -> bool:
    """True for a workload, job or pod of the Snapshot."""
    return any(key in table for table in (snapshot.workloads, snapshot.jobs, snapshot.pods))


def _named(command: Command, snapshot: Snapshot) -> Iterator[str]:
    match command:
        case Submit(objects):
            for obj in objects:
                match obj:
                    case Workload() | Job():
                        yield obj.key
                    case Pod():
                        yield obj.workload or obj.job or obj.key
                    case _:
                        pass
        case Copy(of, name):
            yield _copied(of, name, snapshot)
        case SetActive(key, True) | Requeue(key) | SetPriority(key) | MoveToQueue(key) | Scale(key) | AnswerCheck(key):
            yield key
        case Later(_, later):
            yield from _named(later, snapshot)
        case _:
            pass


def _copied(of: str, name: str, snapshot: Snapshot) -> str:
    """Return the key of a copy: of the job of this name if there is one, else of a workload or a pod."""
    *_, namespace, _ = of.split("/")
    key = f"{namespace}/{name}"
    return next((job.key for job in snapshot.jobs.all() if job.key.partition("/")[2] == key), key)
