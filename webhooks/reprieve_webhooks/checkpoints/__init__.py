"""Reports of agents: when the workload of a pod saved at a time of its own choice."""
