"""Builders of clusters and stand-ins for servers and terminals, shared by tests."""
