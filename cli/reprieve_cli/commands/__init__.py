"""One module a command, imported when it runs."""
