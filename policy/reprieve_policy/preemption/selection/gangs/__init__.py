"""Gangs: room on many nodes at once, for all pods of a gang or for none."""
