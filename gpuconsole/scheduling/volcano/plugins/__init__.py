"""Volcano's scheduler plugins; `registry` lists them."""
