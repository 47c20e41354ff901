"""kube-scheduler's extender API, `preemptVerb` only: which pods of which nodes may be victims, decided by `policy.choosing`."""
