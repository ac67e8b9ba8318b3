"""Which nodes changed, in order: who looked before has to look again only at those. Mutates."""

from collections.abc import Sequence

_MOST = 4_096


class ChangeLog:
    """Changes of nodes, by number; `count` says how many there have been."""

    def __init__(self) -> None:
        self.count = 0
        self.versions: list[int] = []
        """Of each node: a number that it never had before, or that of the moment that a trial went back to."""
        self._latest: list[int] = []

    def record(self, number: int, version: int | None = None) -> None:
        """A node changed; `version` says that it is as it was then."""
        self.count += 1
        if number == len(self.versions):
            self.versions.append(self.count)
        self.versions[number] = self.count if version is None else version
        self._latest.append(number)
        if len(self._latest) > _MOST:
            del self._latest[: _MOST // 2]

    def since(self, count: int) -> Sequence[int]:
        """The nodes that changed after the first `count` changes; all of them if that is too long ago to know."""
        missed = self.count - count
        if missed > len(self._latest):
            return range(len(self.versions))
        return self._latest[len(self._latest) - missed :]

    def fork(self) -> "ChangeLog":
        """A journal that starts equal and never touches this one."""
        twin = ChangeLog()
        twin.count, twin.versions, twin._latest = self.count, self.versions[:], self._latest[:]
        return twin
