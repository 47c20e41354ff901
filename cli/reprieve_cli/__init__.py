"""`reprieve` and `kubectl reprieve`: what people run. It asks the policy what holds; no rule of Reprieve is here."""
