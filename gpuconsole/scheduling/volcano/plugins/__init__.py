"""Volcano's scheduler plugins; `scheduler_conf.PLUGINS` lists them."""
