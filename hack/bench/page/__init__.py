"""`make bench`: runs the benchmarks one after the other, and writes docs/benchmarks.md."""
