"""GPUs of a node that several tasks share, by memory in MiB (KAI 0.13 node_info gpu_sharing_node_info)."""


class SharedGpus:
    """What of each shared GPU is used, being released, and held by tasks that are no mere plan. Mutates.

    A GPU is known by the name of its group. `used` counts every task on it, `allocated` leaves out those that are
    pipelined, `releasing` those that leave less those that wait for it. `marked` are GPUs that will be wholly free.
    """

    def __init__(self) -> None:
        self.used: dict[str, int] = {}
        self.releasing: dict[str, int] = {}
        self.allocated: dict[str, int] = {}
        self.marked: set[str] = set()

    @property
    def count(self) -> int:
        """Number of shared GPUs in use."""
        return sum(memory > 0 for memory in self.used.values())

    def leaves(self, group: str) -> bool:
        """True if everything in use on the GPU is being released."""
        used = self.used.get(group, 0)
        return used != 0 and self.releasing.get(group) == used

    def shift(self, ledger: dict[str, int], group: str, memory: int) -> None:
        ledger[group] = ledger.get(group, 0) + memory
