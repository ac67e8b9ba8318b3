"""MultiKueue: a manager cluster reserves quota and lets worker clusters compete to run the workload (KEP 693)."""
