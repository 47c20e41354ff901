"""Ways to talk to a cluster: single API calls, a client that keeps its connection, kubectl."""
