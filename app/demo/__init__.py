"""``stepplane demo``: a real pipeline on a folder of the user's, to be watched on the debug plane.

The invariant: it stands where a stranger's program would, knowing the client and the domain alone. Nothing is imported
here, since a worker is one small process of it.
"""
