"""Pod placement by kube-scheduler's rules, with all-or-nothing scheduling of gangs.

`profile` has the options, `session` is the entry point. A profile of a KubeSchedulerConfiguration works as in
kube-scheduler: plugins with their weights, nodes sampled zone by zone, back-off. A built-in choice (binpack, spread,
fgd …) evaluates every node and has no back-off. Deterministic: where kube-scheduler breaks ties at random, the first
node in the order of the search wins (by name for a built-in choice, in plain text order, so `n10` comes before `n2`);
pods of equal priority and age are ordered by key. Not simulated: extenders, capacity that CSI drivers publish, and
deallocating unused devices for a pending pod.

Variables that recur: `node_plugins` are plugins prepared for a class of pods (`NodeLocalPlugins`), `pod_plugins` those
prepared for one pod (`PodContextPlugins`), `existing_pods` is the `PodIndex`, and `claims` the `ClaimsAndVolumes`.
"""
