"""Admission by Kueue's rules, decision for decision as Kueue v0.19.2.

`session` is the way in: objects are applied, `run_cycle` returns decisions; `conditions` says what they do to a
Workload. Inside: `rules` and `tree` compile the configuration, `requests` the workloads
(`dra`: what their devices cost; `slices`: elastic jobs); `pending` holds who waits,
`usage` and `accounts` what is used, `second_pass` who holds quota and still lacks a place; `cycle` → `nomination`
(`flavors`, `preemption`, `topology`) → `processing`.

Where Kueue takes the order of a Go map, or sorts without stability, this engine is stable by name:

- heads of different ClusterQueues that tie on borrowing height, priority and age: by the ClusterQueue's name;
- trees and ClusterQueues without a cohort under fair sharing: by the name of the tree's first ClusterQueue;
- children of a cohort in the tournament: child cohorts first, each kind by name;
- child cohorts of equal share when victims are sought: the last by name; ClusterQueues: by their next candidate;
- candidates of several ClusterQueues where LocalQueues take turns: each queue's in their order, merged by their next;
- workloads in their second pass: by name;
- of several slices that a lost node leaves incomplete: the first in the order of the assignment is made whole;
- of two pod sets that are placed together and cannot be: the failure is told for the workers.
"""
