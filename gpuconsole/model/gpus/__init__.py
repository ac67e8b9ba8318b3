"""GPU hardware: models, MIG profiles and placements, sharing, and interconnect.

Numbers of slices and spans are those of `nvidia-smi mig -lgip` and `-lgipp`.
"""
