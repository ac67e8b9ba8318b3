"""Device assignment: chooses the GPUs, MIG instances and DRA devices that a pod gets on its node.

Every engine that places pods uses it. GPUs and MIG instances are chosen as a device plugin would choose them.
"""
