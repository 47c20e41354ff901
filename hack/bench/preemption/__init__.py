"""`make bench-preemption`: one trace of jobs against each way to preempt. See ../README.md."""
