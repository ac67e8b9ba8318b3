"""Admission by Kueue's rules, decision for decision as Kueue v0.19.2.

`session` is the entry point: objects are applied, `run_cycle` returns decisions, and `apply_decisions` applies them to
Workloads. Inside, `cluster_queue_status` and `quota_tree` compile the configuration, `pod_resources` the workloads
(`dra`: device charges; `slices`: elastic jobs). `state` has what a session holds: `cluster_queue` the pending
workloads, `context` the usage. `workloads` changes it for workloads, among them those in their second pass: they hold
quota and still need a topology assignment. A cycle (`scheduler`) nominates and processes its heads (`processing`, with
`flavor_assigner`, `preemption`, `topology`).

Where Kueue takes the order of a Go map, or sorts without stability, this engine is stable by name:

- heads of different ClusterQueues that tie on borrowing level, priority and age: by the ClusterQueue's name;
- trees and ClusterQueues without a cohort under fair sharing: by the name of the tree's first ClusterQueue;
- children of a cohort in the tournament: child cohorts first, each kind by name;
- child cohorts of equal share in the search for victims: the last by name; ClusterQueues: by their next candidate;
- candidates of several ClusterQueues under admission fair sharing: each queue's in their order, merged by their next;
- workloads in their second pass: by name;
- topology slices that a lost node leaves incomplete: the first in the order of the assignment is completed;
- two pod sets that must be placed together and cannot be: the failure is reported for the workers.
"""
