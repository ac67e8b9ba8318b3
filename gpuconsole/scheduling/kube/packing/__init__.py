"""Packing GPUs: policies that place pods so that what stays free is of use, and how to measure what is of none.

FGD ("Beware of Fragmentation", ATC'23) and the policies that it is compared with: best-fit, dot-product, GPU packing,
GPU clustering, random. Each is a pure score of a room for a demand and a choice of GPUs inside the node; a replay runs
a stream of pods through one of them. The rules are those of hkust-adsl/kubernetes-scheduler-simulator (8f3d641).
"""
