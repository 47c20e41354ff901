"""A victim from TERMINATING on: its replacement, the DELETE or eviction, the finalizers."""
