"""`make bench-victims`: a thousand victims and more at once, in a cluster of many other pods. See ../README.md."""
