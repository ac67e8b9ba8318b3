"""GPUs of a node that several tasks share, by memory in MiB (KAI 0.13 node_info gpu_sharing_node_info)."""


class SharedGpus:
    """Used, releasing and allocated memory of each shared GPU. Mutates.

    A GPU is identified by the name of its sharing group. `used` counts all its tasks, `allocated` all but pipelined
    ones, `releasing` the terminating ones less the pipelined ones. `marked` has GPUs that count as wholly releasing.
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
        """Add memory, perhaps negative, to a GPU's entry in one of the three dictionaries."""
        ledger[group] = ledger.get(group, 0) + memory
