"""What GPUs are: models, MIG profiles and where their instances may lie, sharing, and how a node wires them.

Numbers of slices and spans are those of `nvidia-smi mig -lgip` and `-lgipp`.
"""
