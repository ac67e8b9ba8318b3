"""What the controllers of an API server, of Kueue and of the kubelets would do, as functions on a World."""
