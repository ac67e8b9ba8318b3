"""A live cluster as a backend: lists and watches in, commands out, within a budget of requests."""
