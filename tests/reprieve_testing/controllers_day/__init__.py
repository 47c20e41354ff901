"""A day of all controllers on a cluster: the audit log, its chapters and their workloads."""
