"""Pod placement by kube-scheduler's rules, with gangs that are placed whole.

By a profile of a KubeSchedulerConfiguration as kube-scheduler does it: plugins with their weights, nodes sampled zone
by zone, back-off. Or by one choice (pack, spread, FGD …): every node is looked at, nobody backs off. Deterministic:
where kube-scheduler breaks ties at random, the first node in the order of the search wins (by name where a choice is
made, in plain text order, so `n10` comes before `n2`); pods of equal priority and age go by key. Left out: extenders,
capacity that CSI drivers publish, and giving unused devices back for a pod that waits for them.

`policy` says what may be chosen, `session` is the way in.
"""
