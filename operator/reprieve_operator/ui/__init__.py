"""The page `/ui`: what happens to victims now, and what the last 24 hours cost. Read-only."""
