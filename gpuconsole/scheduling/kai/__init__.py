"""KAI Scheduler 0.13's scheduling rules: sessions, actions and plugins over tasks, pod groups, queues and nodes.

Where KAI depends on the order of a Go map, items are ordered by name here.
"""
