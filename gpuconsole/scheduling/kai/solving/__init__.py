"""The search for victims: scenarios that grow one by one, each tried by a statement, until a job fits."""
