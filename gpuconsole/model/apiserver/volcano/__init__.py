"""Volcano 1.15.1's webhooks for Jobs, Queues, PodGroups, HyperNodes, pods, CronJobs and JobFlows.

Lists that Volcano prints in the random order of a Go map are in the order of the document, or sorted by name.
"""

from gpuconsole.model.apiserver.volcano.queues_and_pod_groups import Objection, message_of

__all__ = ["Objection", "message_of"]
