"""The model: frozen data about a cluster, without behaviour that needs a clock."""
