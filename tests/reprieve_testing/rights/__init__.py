"""The rights that the programs use in a run of the cluster tests, beside those that they have.

A run with `REPRIEVE_RIGHTS=FOLDER` audits what each program reads, too. When a cluster ends,
`usage` writes what its programs used to a file in that folder. `comparison` compares all of these
files with the roles in `manifests`.
"""
