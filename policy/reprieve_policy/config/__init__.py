"""What an admin sets: the cluster's policy, Namespaces, classes, tolerations, walltimes."""
