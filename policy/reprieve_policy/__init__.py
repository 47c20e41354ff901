"""The pure core of Reprieve: what is well-formed, what is allowed, and what happens to a victim.

Standard library only. No I/O, no clock, no logger: the shells (`webhooks`, `operator`, `cli`) observe the world,
ask this package what follows, and perform it. Both halves use the same functions, so that what is admitted is
exactly what is honoured later.
"""
