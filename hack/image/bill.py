"""The software bill of materials of the image, as CycloneDX JSON."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import Distribution

from cyclonedx.factory.license import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from .debian import Package, Release


def write(
    image: Component,
    debian: Iterable[Package],
    python: Iterable[Distribution],
    release: Release,
    time: int,
) -> str:
    """Return the document.

    Its serial number follows from the image's digest, and its time is the image's, so that two
    builds of the same image give the same document.
    """
    parts = [*(_debian(package, release) for package in debian), *map(_python, python)]
    system = Component(
        type=ComponentType.OPERATING_SYSTEM,
        name=release.identity,
        version=release.version,
        bom_ref="operating-system",
    )
    bom = Bom(
        components=[system, *parts],
        serial_number=uuid.uuid5(uuid.NAMESPACE_URL, str(image.bom_ref.value)),
        metadata=BomMetaData(component=image, timestamp=datetime.fromtimestamp(time, UTC)),
    )
    bom.register_dependency(image, [system, *parts])
    return JsonV1Dot6(bom).output_as_string(indent=1) + "\n"


def image_component(name: str, version: str, digest: str) -> Component:
    """Return the image itself; the rest of the document is about what is in it."""
    purl = PackageURL("oci", name=name, version=digest)
    return Component(
        type=ComponentType.CONTAINER,
        name=name,
        version=version,
        bom_ref=str(purl),
        purl=purl,
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest.removeprefix("sha256:"))],
    )


def _debian(package: Package, release: Release) -> Component:
    purl = PackageURL(
        "deb",
        release.identity,
        package.name,
        package.version,
        {"arch": release.architecture, "distro": release.name},
    )
    return Component(
        name=package.name,
        version=package.version,
        bom_ref=str(purl),
        purl=purl,
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=package.sha256)],
    )


def _python(package: Distribution) -> Component:
    name, version = package.metadata["Name"], package.version
    purl = PackageURL("pypi", name=name.lower().replace("_", "-"), version=version)
    stated = package.metadata.json.get("license_expression")
    licenses = [LicenseFactory().make_from_string(str(stated))] if stated else []
    return Component(name=name, version=version, bom_ref=str(purl), purl=purl, licenses=licenses)
