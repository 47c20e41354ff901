"""Gangs that are evicted as a unit: one eviction for all pods, joined by each pod's reconciler."""
