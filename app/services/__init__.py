"""Use cases. Each public method that writes is one transaction.

The invariant: a service decides and a store keeps; neither knows HTTP.
"""
