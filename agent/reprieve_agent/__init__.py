"""The agent in a pod: the standard library and nothing else, because one runs beside every workload that asks."""
