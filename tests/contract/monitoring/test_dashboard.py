"""Prometheus' own engine evaluates every query of the dashboard on what the programs export.

The first build of promtool takes minutes, so these tests are slow; `test_names.py` has what is
shown without it.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from reprieve_testing import monitoring

QUERIES = monitoring.queries()


def series() -> Iterator[dict[str, str]]:
    """Yield each series of both programs, as a Prometheus has it that scrapes them for an hour."""
    for job, text in monitoring.exposition().items():
        yield {"series": f'up{{job="{job}",pod="{job}-1"}}', "values": "1x70"}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                labels = {**sample.labels, "job": job, "pod": f"{job}-1"}
                shown = ",".join(f'{key}="{value}"' for key, value in labels.items())
                yield {"series": f"{sample.name}{{{shown}}}", "values": "1+1x70"}


@pytest.mark.slow
def test_every_query_has_an_answer(tmp_path: Path) -> None:
    """Queries that select certain outcomes have one where those outcomes happened."""
    stored = list(series())
    wanted = [{"labels": "{}", "value": 1}]
    tests = [
        {"expr": f"group({query})", "eval_time": "65m", "exp_samples": wanted}
        for query in QUERIES.values()
    ]
    test = {"interval": "1m", "input_series": stored, "promql_expr_test": tests}
    file = tmp_path / "test.json"
    file.write_text(json.dumps({"tests": [test]}))
    done = monitoring.promtool("test", "rules", file)
    assert done.returncode == 0, "\n".join(re.findall(r"expr: .*", done.stdout + done.stderr))


@pytest.mark.slow
@pytest.mark.parametrize("job", ["reprieve-operator", "reprieve-webhooks"])
def test_prometheus_reads_the_metrics(job: str) -> None:
    done = monitoring.promtool("check", "metrics", stdin=monitoring.exposition()[job])
    assert done.returncode in (0, 3), done.stderr
    # 3: complaints about style. Those about names would change what users have alerts on.
    assert "error while" not in done.stderr
