"""Tools that break the operator on purpose, and the promises that must hold all the same."""
