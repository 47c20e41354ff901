"""Plugins of pytest: what a run prints, and how two runs on one machine share it."""
