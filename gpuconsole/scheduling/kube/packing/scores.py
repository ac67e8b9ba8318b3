"""The policies that FGD is compared with, as scores: best-fit, dot-product, GPU packing, GPU clustering.

The higher the better; call them only if the pod fits. Integer and floating-point steps follow the simulator's Go code.
"""

from gpuconsole.scheduling.kube.packing.free_capacity import MILLI, NO_GPU, FreeCapacity, PodDemand

MAX_SCORE = 100
MOST_CPU = 128_000
"""milli-CPU of the largest node of the paper's cluster; cpu is measured as a share of it, GPUs of `MOST_GPU`."""
MOST_GPU = 8_000


def best_fit(room: FreeCapacity, demand: PodDemand) -> int:
    """Higher the less is left with the pod: ⌊100 · (1 − ½ · cpu left / 128 − ½ · GPUs left / 8)⌋ (best_fit_score.go).

    The simulator stretches the scores to 0 … 100 afterwards, which keeps their order.
    """
    unused = 0.0
    unused += (room.cpu - demand.cpu) / MOST_CPU * 0.5
    unused += (room.idle - demand.total) / MOST_GPU * 0.5
    return int((1.0 - unused) * MAX_SCORE)


def dot_product(room: FreeCapacity, demand: PodDemand) -> int:
    """Higher the smaller the dot product of free capacity and requests (dot_product_score.go).

    Its dimensions are cpu and all GPUs together, as shares of the largest node (dimExtMethod merge, normMethod max).
    """
    product = 0.0
    product += room.cpu / MOST_CPU * (demand.cpu / MOST_CPU)
    product += room.idle / MOST_GPU * (demand.total / MOST_GPU)
    return int(MAX_SCORE * (1 - product / 2))


def gpu_packing(room: FreeCapacity, demand: PodDemand) -> int:
    """Shared GPUs first, then free GPUs of a node in use, then a free node (gpu_packing_score.go).

    100 − a tenth of the percent left on the GPUs in use, at least 50; 50 − the wholly free GPUs that it takes, at
    least 33; 33 − the GPUs of the free node, at least their number. 0 for a pod without GPUs.
    """
    if not demand.gpus:
        return 0
    free = room.free
    if free == len(room.gpus):
        return max(MAX_SCORE // 3 - free, free)
    enough = [left for left in room.ordered if left >= demand.milli][: demand.gpus]
    opened = enough.count(MILLI)
    if opened:
        return max(MAX_SCORE // 2 - opened, MAX_SCORE // 3)
    return max(MAX_SCORE - sum(left * 100 // MILLI for left in enough) // 10, MAX_SCORE // 2)


def gpu_clustering(room: FreeCapacity, demand: PodDemand) -> int:
    """Pods of one kind together (gpu_clustering_score.go). 0 for a pod without GPUs.

    Four bands of 25, in each the fuller node first: nodes with this kind alone, with others too, empty, with others.
    """
    kind = demand.kind
    if kind == NO_GPU:
        return 0
    fullness = MAX_SCORE // 4 * max(0, MOST_GPU - room.idle) // MOST_GPU
    if kind in room.kinds:
        return fullness + MAX_SCORE * (3 if len(room.kinds) == 1 else 2) // 4
    return fullness + (0 if room.kinds else MAX_SCORE // 4)
