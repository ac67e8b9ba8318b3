"""How long pods that were refused wait before they are tried again (the scheduling queue's back-off). Mutates.

kube-scheduler also tries every pod again that was refused five minutes ago (the flush of unschedulable pods): that is
for events that its plugins missed. Here whatever may help a pod wakes it, so the flush would decide nothing.
"""

from gpuconsole.model.clock import Time
from gpuconsole.scheduling.kube.profile import Backoff

MARK = "delay="


class Delays:
    """By pod, or by gang where pods start together; without a rule nobody waits."""

    def __init__(self, rule: Backoff | None) -> None:
        self._rule = rule
        self._attempts: dict[str, int] = {}
        self._until: dict[str, Time] = {}
        self._since: dict[str, Time] = {}

    def fork(self) -> "Delays":
        twin = Delays(self._rule)
        twin._attempts, twin._until = self._attempts.copy(), self._until.copy()
        twin._since = self._since.copy()
        return twin

    @property
    def idle(self) -> bool:
        """True if nobody waits for a time."""
        return not self._until

    def until(self, key: str) -> Time:
        """When it may be tried again; 0 if at once."""
        return self._until.get(key, 0)

    def queued(self, key: str, created: Time) -> Time:
        """Since when it waits in the queue: its last refusal puts it behind those that wait longer."""
        return self._since.get(key, created)

    def refuse(self, key: str, now: Time) -> None:
        """It was tried in vain."""
        if self._rule is None:
            return
        attempts = self._attempts[key] = self._attempts.get(key, 0) + 1
        self._until[key] = now + self._rule.after(attempts)
        self._since[key] = now

    def forget(self, key: str) -> None:
        """It waits no longer."""
        if self._attempts.pop(key, None) is not None:
            del self._until[key], self._since[key]

    def memory(self) -> tuple[str, ...]:
        """Everybody's delay as text."""
        return tuple(
            f"{MARK}{attempts}@{self._until[key]}@{self._since[key]}@{key}"
            for key, attempts in sorted(self._attempts.items())
        )

    def recall(self, line: str) -> None:
        """Take one line of `memory` back."""
        attempts, until, since, key = line.removeprefix(MARK).split("@", 3)
        self._attempts[key], self._until[key], self._since[key] = int(attempts), int(until), int(since)
