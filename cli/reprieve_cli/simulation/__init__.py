"""Simulating a preemption from a dump or a live cluster."""
