"""Where events come from and commands go to: the one seam."""
