"""What follows a victim: its owner's ledger, recreated bare pods, suspended and resumed Jobs."""
