"""The programs `reprieve` and `kubectl reprieve`. All rules are in `reprieve_policy`, none here."""
