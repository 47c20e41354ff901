"""Further processes that answer reviews on the same port, with `--workers` above 1.

The program itself is the first worker. It starts the others, answers probes and metrics for all,
and ends them when it ends.
"""
