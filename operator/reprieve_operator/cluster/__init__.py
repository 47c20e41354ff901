"""The operator's reads and writes of the cluster: pods, policies, Events, the leader's Lease."""
