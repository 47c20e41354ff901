"""Preemption: the guard's decision, protection, cost, victim selection, reclaiming lent nodes."""
