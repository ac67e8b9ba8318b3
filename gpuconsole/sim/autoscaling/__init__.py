"""Who makes nodes and takes them away: Karpenter, the Cluster Autoscaler, and the cloud that wants spot machines back.

What is needed is decided by pure functions (`rooms`, `offers`, `provisioning`, `disruption`, `groups`, `evictions`);
`buying` and `karpenter`, `growing`, `requests` and `cluster_autoscaler`, `spot` and `machines` carry it out in the
simulated world, `loop` wakes them up. All of them look at pods that a scheduler has refused, so a job that Kueue keeps
suspended moves nothing. Where upstream breaks ties at random or by map order, here the name decides.
"""
