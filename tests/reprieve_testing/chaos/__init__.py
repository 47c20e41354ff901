"""Tools that break the operator on purpose, and the promises that it must keep nevertheless."""
