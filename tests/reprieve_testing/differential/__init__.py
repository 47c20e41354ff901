"""Preemption as upstream's own plugin and as Reprieve decide it, on the same scenarios: who would have to go."""
