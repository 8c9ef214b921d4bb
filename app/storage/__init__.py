"""The store: the only layer that speaks SQL or touches the disk.

The invariant: what the read path shows is computed when an output is written, and never again.
"""
