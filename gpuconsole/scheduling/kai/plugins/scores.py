"""Weights of the score bands: each band exceeds the sum of the lower ones (KAI 0.13 plugins/scores)."""

DENSITY = 9
RESOURCE_TYPE = 10
AVAILABILITY = 100
GPU_SHARING = 1_000
TOPOLOGY = 10_000
POD_AFFINITY = 100_000
NOMINATED = 1_000_000
