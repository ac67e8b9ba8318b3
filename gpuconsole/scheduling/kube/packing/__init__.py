"""GPU packing policies that keep free GPUs usable, and a measure of GPU fragmentation.

FGD ("Beware of Fragmentation", ATC'23) and the policies that it is compared with: best-fit, dot-product, GPU packing,
GPU clustering, random. Each is a pure score of a node's free capacity for a demand and a choice of GPUs on the node.
The rules are those of hkust-adsl/kubernetes-scheduler-simulator (8f3d641).
"""
