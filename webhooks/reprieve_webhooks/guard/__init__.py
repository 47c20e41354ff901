"""Notice for victims of any scheduler, drain or autoscaler: reviews of deletions and evictions.

`reprieve_policy.preemption.guard` decides.
"""
