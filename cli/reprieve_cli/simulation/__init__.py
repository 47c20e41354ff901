"""Simulates preemptions and reclaims, from a live cluster or a dump."""
