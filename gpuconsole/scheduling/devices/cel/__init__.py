"""A bounded subset of the Common Expression Language (CEL), in which DRA device selectors are written.

Supported: strings, numbers, booleans, lists and maps; the operators; `has`, `cel.bind`, and the functions of
`evaluation.FUNCTIONS`. Not supported: comprehensions (`all`, `exists`, `map`, `filter`) and optional values.
Expressions are untrusted input: their length and nesting are bounded, nothing loops, and regular expressions that could
take long are rejected.
"""
