"""Simulated controllers of the API server, Kubernetes, Kueue, Volcano and the kubelets, as functions on a World."""
