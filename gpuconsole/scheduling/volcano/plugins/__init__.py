"""Volcano's plugins, one small file each; `registry` names them."""
