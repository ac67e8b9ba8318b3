"""Volcano's plugins, one small file each; `registry` has them all."""
