"""docs/cookbook: one page for each of the five documents, and what it shows is what it applies.

`test_transcripts.py` runs the pages' commands.
"""

import re

import yaml

from reprieve_testing import manifests

COOKBOOK = manifests.ROOT / "docs" / "cookbook"
INDEX = (COOKBOOK / "README.md").read_text(encoding="utf-8")


def test_each_document_has_a_page() -> None:
    rows = re.findall(r"\(([a-z]+\.md)\) \| (00\d), ", INDEX)
    assert [document for _, document in rows] == ["000", "001", "002", "003", "004"]
    assert {page for page, _ in rows} == {page.name for page in COOKBOOK.glob("*.md")} - {
        "README.md"
    }


def test_the_job_on_the_page_of_gangs_is_the_one_that_is_checked() -> None:
    job = (COOKBOOK / "gangs" / "job.yaml").read_text(encoding="utf-8")
    assert f"```yaml\n{job}```" in (COOKBOOK / "gangs.md").read_text(encoding="utf-8")


def test_the_quota_on_the_page_is_the_one_of_the_cluster() -> None:
    page = (COOKBOOK / "quotas.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    cluster = yaml.safe_load((COOKBOOK / "quotas" / "cluster.yaml").read_text(encoding="utf-8"))
    assert yaml.safe_load(shown) in cluster["items"]
