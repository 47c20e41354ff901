"""`make bench-victims`: many victims at once, in a cluster of many other pods. See ../README.md."""
