"""kube-scheduler's extender API, only `preemptVerb`: which pods of which nodes may be victims.

`reprieve_policy.preemption.selection` decides.
"""
