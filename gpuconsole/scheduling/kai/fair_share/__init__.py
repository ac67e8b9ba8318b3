"""KAI's fair shares: division of surplus, limits and quotas, and reclaim between queues."""
