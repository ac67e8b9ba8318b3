"""The model: frozen facts about a cluster, with no behaviour that needs a clock."""
