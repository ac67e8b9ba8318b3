"""GPU device assignment: chooses which GPUs and MIG instances of its node a pod gets.

What a kubelet's device plugin decides; the same for every engine that places pods.
"""
