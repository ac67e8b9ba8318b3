"""Descriptions of objects: the text shown by `d`."""
