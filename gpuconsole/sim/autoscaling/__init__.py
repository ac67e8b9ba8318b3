"""Node autoscaling in the simulation: Karpenter, the Cluster Autoscaler, and spot interruptions.

`provisioning` and `disruption` decide, without changing anything; `karpenter`, `cluster_autoscaler` and `machines`
change the simulated world, and `loop` triggers them; `sim.policy` has the settings and the state between two scans.
Autoscalers react to pods that a scheduler has refused, so a job that Kueue keeps suspended triggers nothing. Where
upstream breaks ties at random or by map order, here the name decides.
"""
