"""What admission decides: the list of rules, defaults, permissions, and the form of manifests."""
