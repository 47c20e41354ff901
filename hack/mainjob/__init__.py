"""The main job on a real cluster, told as a terminal session: what `make demo` shows and `tests/cluster` asserts.

`chapters` say what happens and what is promised, `scene` is what they act with, `world` is where they act, `story` tells
them in order. The promises are asserted in the chapters themselves, so that the demo and the tests cannot drift apart.
"""
