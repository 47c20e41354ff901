"""The benchmark of `reprieve check` asks what it says it asks."""

import yaml

from bench import checks
from reprieve_cli.manifests import yaml_lines


def test_its_yaml_says_what_its_json_says() -> None:
    for run in checks.RUNS:
        texts = list(checks.documents(run, 20))
        wanted = [checks.deployment(number, run.every) for number in range(20)]
        assert [yaml.safe_load(text) for text in texts] == wanted
        assert [yaml_lines.read(text) for text in texts] == wanted


def test_as_many_documents_are_refused_as_it_says() -> None:
    for run in checks.RUNS:
        refused = sum('"11"' in text for text in checks.documents(run, 20))
        assert refused == (20 // run.every if run.every else 0)
