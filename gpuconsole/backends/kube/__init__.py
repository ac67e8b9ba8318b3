"""Backend for a live cluster: lists and watches its objects and sends commands, within a request budget."""
