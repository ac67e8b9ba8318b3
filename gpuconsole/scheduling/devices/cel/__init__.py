"""A bounded subset of the Common Expression Language (CEL), in which DRA device selectors are written.

Strings, numbers, booleans, lists and maps; the operators; `has`, `cel.bind`, the functions of `functions`. Not there:
comprehensions (`all`, `exists`, `map`, `filter`) and optional values. Expressions come from outside: their length and
nesting are bounded, nothing loops, and regular expressions that could take long are refused.
"""
