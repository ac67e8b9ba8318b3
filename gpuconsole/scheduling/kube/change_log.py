"""Log of changed nodes, in order, so that caches re-evaluate only those. Mutates."""

from collections.abc import Sequence

_MOST_CHANGES = 4_096


class ChangeLog:
    """Changes of nodes, by number; `count` says how many there have been."""

    def __init__(self) -> None:
        self.count = 0
        self.versions: list[int] = []
        """Version of each node: every change sets a new number, and the end of a trial restores the old one."""
        self._latest: list[int] = []

    def record(self, number: int, version: int | None = None) -> None:
        """Record a change of a node; with `version`, the node is as it was at that version."""
        self.count += 1
        if number == len(self.versions):
            self.versions.append(self.count)
        self.versions[number] = self.count if version is None else version
        self._latest.append(number)
        if len(self._latest) > _MOST_CHANGES:
            del self._latest[: _MOST_CHANGES // 2]

    def since(self, count: int) -> Sequence[int]:
        """Nodes that changed after the first `count` changes; all nodes if the log no longer reaches back that far."""
        missed = self.count - count
        if missed > len(self._latest):
            return range(len(self.versions))
        return self._latest[len(self._latest) - missed :]

    def fork(self) -> "ChangeLog":
        """An independent copy of the log."""
        twin = ChangeLog()
        twin.count, twin.versions, twin._latest = self.count, self.versions[:], self._latest[:]
        return twin
