"""The output formats, one module each, with `write(findings, summary)`, which yields the parts."""
