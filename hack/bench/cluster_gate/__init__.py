"""`make bench-gate-cluster`: the cost of a victim and of a review, beside checked-in figures."""
