"""`python -m reprieve_cli`."""

from .main import main

main()
