"""Victim search: scenarios that gain victims step by step, each tried in a statement, until the job fits."""
