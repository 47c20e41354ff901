"""`make bench-preemption`: one trace of jobs against each way to preempt, each on a cluster of its own. See ../README.md."""
