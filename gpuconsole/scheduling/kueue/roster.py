"""Every workload of a session by integer id: who waits in which queue, who holds quota.

`Roster` mutates. A fork shares everything and copies a queue, or a queue's holdings, only when it first changes it.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.pending import PendingQueue
from gpuconsole.scheduling.kueue.requests import Holding, Request

Record = Request | Holding | Workload
"""A workload that waits, one that holds quota, or one that can do neither now (no queue takes it)."""


class Roster:
    """Workloads by id. Mutates by its methods only; `fork` gives an independent twin."""

    __slots__ = (
        *("_awake", "_holdings", "_ids", "_ids_shared", "_own_holdings", "_own_queues", "_queues", "_ranked"),
        *("_stirred", "records"),
    )

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._ids_shared = False
        self.records: list[Record | None] = []
        """By id; None for those that are gone."""
        self._queues: dict[str, PendingQueue] = {}
        self._own_queues: set[str] = set()
        self._stirred: set[str] = set()
        """Queues that may have changed since `newly_parked` was asked."""
        self._awake: set[str] = set()
        """Queues that may have changed since they were found idle."""
        self._holdings: dict[str, dict[int, Holding]] = {}
        self._own_holdings: set[str] = set()
        self._ranked: dict[str, tuple[Holding, ...]] = {}

    def fork(self) -> "Roster":
        twin = Roster()
        twin._ids = self._ids
        twin._ids_shared = self._ids_shared = True
        twin.records = self.records[:]
        twin._queues, twin._holdings = self._queues.copy(), self._holdings.copy()
        twin._ranked, twin._stirred, twin._awake = self._ranked.copy(), self._stirred.copy(), self._awake.copy()
        self._own_queues, self._own_holdings = set(), set()
        return twin

    def id_of(self, key: str) -> int:
        """The number of a workload; one that is new gets the next."""
        number = self._ids.get(key)
        if number is None:
            if self._ids_shared:
                self._ids, self._ids_shared = self._ids.copy(), False
            number = self._ids[key] = len(self.records)
            self.records.append(None)
        return number

    def find(self, key: str) -> Record | None:
        number = self._ids.get(key)
        return None if number is None else self.records[number]

    @property
    def holdings(self) -> Mapping[str, Mapping[int, Holding]]:
        """ClusterQueue → id → who holds quota there."""
        return self._holdings

    @property
    def holders(self) -> Iterator[Holding]:
        """Everybody who holds quota."""
        return chain.from_iterable(held.values() for held in self._holdings.values())

    def ranked(self, name: str) -> tuple[Holding, ...]:
        """Who holds quota in a ClusterQueue, in the order in which they would be preempted."""
        found = self._ranked.get(name)
        if found is None:
            found = tuple(sorted(self._holdings.get(name, {}).values(), key=lambda holding: holding.rank))
            self._ranked[name] = found
        return found

    def hold(self, holding: Holding) -> None:
        self.records[holding.id] = holding
        self._held(holding.cluster_queue)[holding.id] = holding

    def drop_holding(self, holding: Holding) -> None:
        del self._held(holding.cluster_queue)[holding.id]
        self.records[holding.id] = None

    def _held(self, name: str) -> dict[int, Holding]:
        """Who holds quota in a ClusterQueue, to be changed."""
        self._ranked.pop(name, None)
        if name not in self._own_holdings:
            self._holdings[name] = self._holdings.get(name, {}).copy()
            self._own_holdings.add(name)
        return self._holdings[name]

    def add_queue(self, name: str, queue: PendingQueue) -> None:
        self._queues[name] = queue
        self._own_queues.add(name)
        self._stirred.add(name)
        self._awake.add(name)

    def drop_queue(self, name: str) -> None:
        self._queues.pop(name, None)

    def queue(self, name: str) -> PendingQueue:
        """A ClusterQueue's queue, to be changed."""
        self._stirred.add(name)
        self._awake.add(name)
        return self._own(name)

    def _own(self, name: str) -> PendingQueue:
        if name not in self._own_queues:
            self._queues[name] = self._queues[name].copy()
            self._own_queues.add(name)
        return self._queues[name]

    def newly_parked(self) -> list[Request]:
        """Who is parked and came, or changed, since it was named here; each is named once."""
        found = [r for name in self._stirred & self._queues.keys() for r in self._own(name).newly_parked()]
        self._stirred = set()
        return found

    def awake(self) -> list[str]:
        """The ClusterQueues, in order, in whose queues somebody may be next."""
        found = sorted(name for name in self._awake & self._queues.keys() if not self._queues[name].idle)
        self._awake = set(found)
        return found

    def look_at(self, name: str) -> PendingQueue | None:
        """A ClusterQueue's queue, only to be read."""
        return self._queues.get(name)

    @property
    def anybody_waits(self) -> bool:
        return any(len(queue) for queue in self._queues.values())

    def all(self) -> Iterable[Record]:
        return (record for record in self.records if record is not None)
