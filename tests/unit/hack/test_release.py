"""What `make release` and `make version` decide: versions, changelog, parts, notes and listing."""

from pathlib import Path

import pytest

from release import changelog, dist, parts, version

CHANGELOG = """# Changelog

## [Unreleased]
### Security
- a hole is closed

### Upgrade notes
- apply the manifests first

## [0.1.0] (not released)
### Added
- all
"""
RELEASED = changelog.cut(CHANGELOG, "0.2.0", "2026-11-26")
WRITTEN = {
    'version = "{}"\n': "the package",
    "image: registry.example.com/reprieve:{}\n": "the image",
    "registry.example.com/reprieve:{}-arm64\n": "the image of one architecture",
    "dist/reprieve-{}.oci.tar dist/reprieve-{}.tgz\n": "files of a release",
    "dist/reprieve-{}-arm64.oci.tar\n": "the archive for arm64",
    "dist/reprieve-{}-amd64.cdx.json\n": "the bill of materials for amd64",
    "    app.kubernetes.io/version: {}\n": "the label",
    "version: {}\n": "the chart",
    'appVersion: "{}"\n': "the chart's programs",
}
OTHERS = (
    "another:0.1.0\n",
    "image: reprieve:0.1.0-rc\n",
    "reprieve:0.1.01\n",
    'minversion = "0.1.0"\n',
    "  version: 0.1.0 # of another chart\n",
)


@pytest.mark.parametrize("written", WRITTEN, ids=WRITTEN.get)
def test_each_way_to_write_the_version_is_changed(written: str) -> None:
    assert version.rewritten(written.replace("{}", "0.1.0"), "0.1.0", "0.2.0") == written.replace(
        "{}", "0.2.0"
    )


@pytest.mark.parametrize("text", OTHERS)
def test_versions_of_other_things_stay(text: str) -> None:
    assert version.rewritten(text, "0.1.0", "0.2.0") == text


@pytest.mark.parametrize("text", ["0.2", "v0.2.0", "0.2.0-rc.1", "0.02.0", "", "0.2.0\n"])
def test_a_version_has_three_numbers(text: str) -> None:
    assert version.VERSION.fullmatch(text) is None


def test_the_cut_makes_what_is_unreleased_the_section_of_the_version() -> None:
    assert changelog.section(RELEASED, "0.2.0").startswith("### Security\n- a hole is closed")
    assert RELEASED.startswith("# Changelog\n\n## [Unreleased]\n\n## [0.2.0] - 2026-11-26\n")


def test_a_second_cut_of_a_version_changes_nothing() -> None:
    assert changelog.cut(RELEASED, "0.2.0", "2026-11-27") == RELEASED


def test_the_notes_begin_with_the_upgrade() -> None:
    assert changelog.notes(RELEASED, "0.2.0") == (
        "# Reprieve 0.2.0\n\n### Upgrade notes\n- apply the manifests first\n\n"
        "### Security\n- a hole is closed\n"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (CHANGELOG, r"no section"),
        (RELEASED.replace("- apply the manifests first\n", ""), "say what an admin must do"),
        (RELEASED.replace("### Upgrade notes\n", ""), "say what an admin must do"),
    ],
)
def test_a_section_that_cannot_be_released_says_what_to_write(text: str, message: str) -> None:
    with pytest.raises(changelog.ChangelogError, match=message):
        changelog.section(text, "0.2.0")


def test_a_part_that_the_tree_does_not_have_is_named(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text("image: setup\n")
    image, chart = (parts.Part(name, (), target=name) for name in ("image", "chart"))
    assert image.missing(tmp_path) is None
    assert chart.missing(tmp_path) == "the Makefile has no target `chart`"
    client = parts.Part("client", (), package="client")
    assert client.missing(tmp_path) == "there is no client/pyproject.toml"


def test_a_part_that_writes_less_than_its_line_says_fails(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text("image:\n\t@touch dist/reprieve-0.2.0.tar\n")
    (tmp_path / "dist").mkdir()
    image = parts.Part("image", ("*{version}*.tar", "*sbom*.json"), target="image")
    problem = parts.build(image, tmp_path, tmp_path / "dist", "0.2.0", "0")
    assert problem == "the part `image` did not write *sbom*.json into dist/"


def test_a_part_whose_command_fails_is_named(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text("image:\n\t@false\n")
    problem = parts.build(parts.Part("image", (), target="image"), tmp_path, tmp_path, "0.2.0", "0")
    assert problem == "could not build the part `image`; its messages are above"


def test_names_of_parts_are_unique() -> None:
    assert len({part.name for part in parts.PARTS}) == len(parts.PARTS)
    assert "image" not in {part.name for part in parts.chosen({"image"})}


def test_the_listing_has_sizes_and_the_sums_are_those_of_sha256sum(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 2048)
    (tmp_path / "b").write_bytes(b"")
    dist.write_sums(tmp_path)
    nothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert f"{nothing}  b\n" in (tmp_path / dist.SUMS).read_text()
    _, *lines = [line.split() for line in dist.listing(tmp_path)]
    name = tmp_path.name
    assert lines == [["2.0", "KiB", f"{name}/a"], ["0", "B", f"{name}/b"]]
    assert dist.size(3 * 1024 * 1024) == "3.0 MiB"
