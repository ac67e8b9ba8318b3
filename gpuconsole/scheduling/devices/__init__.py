"""Which devices of its node a pod gets: GPUs that are close to each other, and MIG instances.

What a kubelet's device plugin decides; the same for every engine that places pods.
"""
