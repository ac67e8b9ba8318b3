"""GPU fragmentation as FGD measures it: how much of a node's idle GPU capacity typical pods cannot use.

For one typical pod, all idle milli of a node is fragment if the pod has no GPU or the node does not fit it (model, cpu,
or fewer GPUs with enough left than it requests); otherwise only what is left of GPUs with too little for it. F(n) is
the mean over the typical pods, by frequency. Memory does not count.
"""

from bisect import bisect_left, bisect_right
from itertools import accumulate

from gpuconsole.scheduling.kube.packing.free_capacity import FreeCapacity, suits
from gpuconsole.scheduling.kube.packing.typical import Typical

_REMEMBERED = 200_000

Steps = tuple[list[int], list[int]]
"""(cpu from which on each further typical pod fits, fragment in milli × pods below the first and from each on)."""


class Fragmentation:
    """Measures the fragmentation of free capacity against typical pods. Mutates, but only as a cache.

    Amounts are exact integers: milli summed over the typical pods. Divided by `weight` they are F(n) in milli.
    """

    def __init__(self, pods: Typical) -> None:
        self.weight = max(1, sum(count for _, count in pods))
        """Number of typical pods that F(n) is a mean over, at least 1."""
        self._pods = sorted(((pod, count) for pod, count in pods if pod.gpus), key=lambda entry: entry[0].cpu)
        self._equal_models: dict[str, int] = {}
        self._classes: dict[tuple[int, ...], int] = {}
        self._suited: list[list[tuple[int, int, int, int]]] = []
        self._steps: dict[tuple[int, tuple[int, ...]], Steps] = {}

    def of(self, room: FreeCapacity) -> float:
        """F(n): fragmented milli of the node's idle GPUs."""
        return self.amount(room.model, room.cpu, room.ordered) / self.weight

    def amount(self, model: str, cpu: int, ordered: tuple[int, ...]) -> int:
        """F(n) × `weight` of a node with this free cpu; `ordered` has the milli left of each GPU, the least first."""
        equal_pods = self._equal_models.get(model)
        if equal_pods is None:
            equal_pods = self._class(model)
        steps = self._steps.get((equal_pods, ordered))
        if steps is None:
            steps = self._find(equal_pods, ordered)
        return steps[1][bisect_right(steps[0], cpu)]

    def _class(self, model: str) -> int:
        """A number for the model; models that the same typical pods can use share one."""
        suited = tuple(n for n, (pod, _) in enumerate(self._pods) if suits(model, pod.models))
        number = self._classes.setdefault(suited, len(self._classes))
        if number == len(self._suited):
            chosen = [self._pods[n] for n in suited]
            self._suited.append([(pod.cpu, pod.gpus, pod.milli, count) for pod, count in chosen])
        self._equal_models[model] = number
        return number

    def _find(self, equal_pods: int, ordered: tuple[int, ...]) -> Steps:
        if len(self._steps) >= _REMEMBERED:
            self._steps.clear()
        below = [0, *accumulate(ordered)]
        idle, number = below[-1], len(ordered)
        cpus: list[int] = []
        useless = [idle * self.weight]
        for cpu, gpus, milli, count in self._suited[equal_pods]:
            first = bisect_left(ordered, milli)
            if number - first >= gpus:
                cpus.append(cpu)
                useless.append(useless[-1] - count * (idle - below[first]))
        steps = self._steps[equal_pods, ordered] = (cpus, useless)
        return steps
