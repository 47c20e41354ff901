"""The pure core of Reprieve: which values are valid, what is allowed, and what happens to a victim.

Standard library only. No I/O, no clock, no logger: the programs (`webhooks`, `operator`, `cli`)
observe the cluster, ask this package for a decision, and carry it out. Admission and the operator
use the same functions, so the operator honours exactly what admission accepted.
"""
