"""`make test-robustness`: random work and random faults, and a checker of the history."""
