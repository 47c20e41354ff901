"""`make bench-gate`: what a review, a victim and a call of the extender cost, in counts."""
