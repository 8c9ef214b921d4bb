"""HTTP in, HTTP out, and nothing else.

The invariant: a route translates; it decides nothing.
"""
