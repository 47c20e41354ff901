"""`make bench-gate`: the cost of a victim and of a review, beside checked-in figures."""
