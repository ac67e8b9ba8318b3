"""Cost: present rates, allocation of cost to workloads hour by hour, reports."""
