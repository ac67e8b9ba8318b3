"""Simulated controllers of the API server, Kueue and the kubelets, as functions on a World."""
