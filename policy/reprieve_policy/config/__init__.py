"""What an administrator sets: the policy's settings, Namespaces, classes, tolerations, walltimes."""
