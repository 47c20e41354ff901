"""The programs that a cluster runs: their pinned versions, a Go toolchain, cached builds."""
