"""Preemption as upstream's own plugin and as Reprieve decide it, on the same scenes: who would have to go."""
