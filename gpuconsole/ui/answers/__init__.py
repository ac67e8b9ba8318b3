"""Answers in words, as lines of text: the command line prints them, and the console shows them."""
