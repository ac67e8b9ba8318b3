"""Widgets that know their data type, never the app."""
