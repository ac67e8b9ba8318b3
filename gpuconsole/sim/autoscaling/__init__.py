"""Node autoscaling in the simulation: Karpenter, the Cluster Autoscaler, and spot interruptions.

Pure functions decide (`node_fit`, `offerings`, `provisioning`, `disruption`, `groups`, `evictions`);
`karpenter_provisioning`, `karpenter`, `ca_scale_up`, `requests`, `cluster_autoscaler`, `spot` and `machines` change the
simulated world, and `loop` triggers them. Autoscalers react to pods that a scheduler has refused, so a job that Kueue
keeps suspended triggers nothing. Where upstream breaks ties at random or by map order, here the name decides.
"""
