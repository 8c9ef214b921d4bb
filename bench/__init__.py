"""The benchmark: what reads and submits cost, as ratios to simpler programs on the same machine in the same minutes.

The invariant: what was started is ended and what was written is deleted, however the benchmark comes to its end.
"""
