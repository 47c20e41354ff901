"""Who may be preempted: the guard's decision, protection, cost, reclaiming lent nodes."""
