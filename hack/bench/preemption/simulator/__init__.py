"""`make bench-simulate`: what `make bench-preemption` measures, simulated in about a minute."""
