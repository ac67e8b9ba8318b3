"""Reports as lines of text and tables: the command line prints them, and the console shows them."""
