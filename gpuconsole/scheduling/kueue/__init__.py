"""Admission by Kueue's rules, decision for decision as Kueue v0.19.2.

`session` is the entry point: objects are applied, `run_cycle` returns decisions, and `apply_decisions` applies them to
Workloads. Inside, `compiled_config` and `tree` compile the configuration, `requests` the workloads (`dra`: device
charges; `slices`: elastic jobs). `cluster_queue` holds pending workloads, `usage` and `cycle_snapshot` the usage, and
`second_pass` workloads with quota that still need a topology assignment. A `cycle` runs `nomination`
(`flavor_assigner`, `preemption`, `topology`) and then `processing`.

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
