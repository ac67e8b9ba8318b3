"""Rules of Volcano 1.15.1's job controller for a Job, as functions of the job and its pods.

`states` describes events, chooses the action by the job's policies, and plans it for the job's phase.
`pods` selects the pods to delete and create and computes the status, `job_plugins` changes new pods, and `pod_group`
builds the PodGroup. Where the controller iterates over a Go map, tasks are processed in their order.
"""
