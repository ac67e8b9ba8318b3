"""KAI Scheduler 0.13's rules: sessions, actions and plugins over tasks, pod groups, queues and nodes.

Where KAI goes by the order of a Go map, this one is stable: by name.
"""
