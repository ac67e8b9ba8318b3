"""Rules of Volcano 1.15.1's job controller for a Job, as functions of the job and its pods.

`requests` describes events, `policies` chooses the action, and `states` plans it for the job's phase. `kill_pods` and
`syncing` select the pods to delete and create and compute the status, `group` builds the PodGroup. Where the controller
iterates over a Go map, tasks are processed in their order.
"""
