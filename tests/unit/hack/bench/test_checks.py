"""The benchmark of `reprieve check` writes the documents that it describes."""

import yaml

from bench import checks
from reprieve_cli.manifests import yaml_lines


def test_the_yaml_and_the_json_documents_are_equal() -> None:
    for run in checks.RUNS:
        texts = list(checks.documents(run, 20))
        wanted = [checks.deployment(number, run.every) for number in range(20)]
        assert [yaml.safe_load(text) for text in texts] == wanted
        assert [yaml_lines.read(text) for text in texts] == wanted


def test_the_declared_number_of_documents_is_refused() -> None:
    for run in checks.RUNS:
        refused = sum('"11"' in text for text in checks.documents(run, 20))
        assert refused == (20 // run.every if run.every else 0)
