"""The guard on loopback and on a cluster, and the requests that it answers."""
