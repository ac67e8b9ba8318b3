"""Navigation history of views: back, forward, and to the last one."""


class ViewHistory:
    """The views that were open, in order, and the current one. Mutates."""

    def __init__(self, start: str) -> None:
        self._visited = [start]
        self._at = 0

    @property
    def here(self) -> str:
        return self._visited[self._at]

    def go(self, view: str) -> None:
        """Open a view from here; the forward history is dropped."""
        if view != self.here:
            self._visited[self._at + 1 :] = [view]
            self._at += 1

    def step(self, views: int) -> str | None:
        """Go back (negative) or forward; None without a view there."""
        if not 0 <= self._at + views < len(self._visited):
            return None
        self._at += views
        return self.here

    @property
    def last(self) -> str | None:
        """The previously open view."""
        before = (*self._visited[: self._at][::-1], *self._visited[self._at + 1 :])
        return next((view for view in before if view != self.here), None)
