"""Servers on loopback: a stub API server, the admission server, workloads that answer hints."""
