"""Reads from and writes to a cluster."""
