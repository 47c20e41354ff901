"""How the operator is broken on purpose, and what must hold all the same."""
