"""The victim-handling operator: observes pods, asks the policy what follows, performs it."""
