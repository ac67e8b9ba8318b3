"""Pod placement by kube-scheduler's rules, with all-or-nothing scheduling of gangs.

A profile of a KubeSchedulerConfiguration works as in kube-scheduler: plugins with their weights, nodes sampled zone by
zone, back-off. A single choice (pack, spread, FGD …) evaluates every node and has no back-off. Deterministic: where
kube-scheduler breaks ties at random, the first node in the order of the search wins (by name where a choice is made, in
plain text order, so `n10` comes before `n2`); pods of equal priority and age are ordered by key. Not simulated:
extenders, capacity that CSI drivers publish, and deallocating unused devices for a pending pod.

`profile` has the options, `session` is the entry point.
"""
