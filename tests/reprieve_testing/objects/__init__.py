"""API objects, snapshots and views of a cluster, built for one test each."""
