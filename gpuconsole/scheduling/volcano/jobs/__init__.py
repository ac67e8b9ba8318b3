"""What Volcano 1.15.1's job controller does with a Job, as functions of the job and its pods.

`requests` says what happened, `policies` what is to be done about it, `states` what that means in the job's phase,
`killing` and `syncing` which pods go and come and what the status is then, `group` which PodGroup the job has.
Where the controller goes through a Go map, these go through the tasks in their order.
"""
