"""How findings are written, one module a format: each has `write(findings, tally)`, and yields the parts of the output."""
