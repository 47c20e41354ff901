"""Measuring Reprieve's programs beside others, on this machine, in one run. See README.md."""
