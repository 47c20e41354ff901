"""The main job on a real cluster, shown as a terminal session.

`make demo` shows it, and `tests/cluster` asserts it. `chapters` say what happens and what is
promised, `session` is what they act with, `installation` is the cluster where they act, and
`runner` runs them in order. The chapters assert their own promises, so that the demo and the tests
cannot differ.
"""
