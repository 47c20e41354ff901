"""Years of certificates in steps of `now`: every client always trusts every served certificate."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.verification import PolicyBuilder, Store

from reprieve_certs import bundle as bundles
from reprieve_certs import issue, renewal
from reprieve_certs.bundle import Bundle
from reprieve_certs.issue import ServingNames
from reprieve_certs.renewal import RenewalStep
from reprieve_certs.rotator import Rotator, StoredSecret, WriteConflict
from reprieve_certs.serving import ServingContext
from reprieve_testing.objects.builders import NOW
from reprieve_testing.virtual_time import run_in_virtual_time

NAMES = ServingNames(("reprieve-webhooks.reprieve-system.svc",))
DAY = timedelta(days=1)


class Secret:
    """The API server's Secret: a write with an outdated version is a conflict."""

    def __init__(self, data: Mapping[str, bytes] | None = None) -> None:
        self.stored = StoredSecret(dict(data or {}), "1")
        self.written = 0

    async def read(self) -> StoredSecret:
        return self.stored

    async def write(self, data: Mapping[str, bytes], version: str) -> StoredSecret:
        # Other replicas run here, as during a real request.
        await asyncio.sleep(0)
        if version != self.stored.version:
            raise WriteConflict
        self.written += 1
        self.stored = StoredSecret(dict(data), str(int(version) + 1))
        return self.stored


class Anchors:
    """The `caBundle` of two webhooks; a broken one refuses writes."""

    def __init__(self) -> None:
        self.trusted = [b"", b""]
        self.is_broken = False
        self.injected_at: list[float] = []
        """The event loop's time of each attempt."""

    async def read(self) -> Sequence[bytes]:
        return list(self.trusted)

    async def inject(self, trusted_pem: bytes) -> None:
        self.injected_at.append(asyncio.get_running_loop().time())
        if self.is_broken:
            raise OSError("the API server is away")
        self.trusted = [trusted_pem] * 2


class CertificateRotation:
    """A Secret, webhook configurations, a clock that a test sets, and the replicas."""

    def __init__(self, data: Mapping[str, bytes] | None = None, replicas: int = 1) -> None:
        self.now = NOW
        self.secret, self.anchors = Secret(data), Anchors()
        self.failures = 0
        self.contexts = [ServingContext() for _ in range(replicas)]
        self.replicas = [
            Rotator(
                self.secret,
                self.anchors,
                context,
                NAMES,
                clock=lambda: self.now,
                count_failure=self.count_failure,
            )
            for context in self.contexts
        ]

    def count_failure(self) -> None:
        self.failures += 1

    async def step(self, by: timedelta, replica: int = 0) -> None:
        self.now += by
        await self.replicas[replica].ensure()

    @property
    def bundle(self) -> Bundle:
        found = bundles.parse(self.secret.stored.data)
        assert found is not None
        return found

    def assert_all_are_trusted(self) -> None:
        for context in self.contexts:
            assert context._loaded is not None
            for trusted in self.anchors.trusted:
                assert is_trusted(context._loaded[0], trusted, self.now)


def is_trusted(certificate_pem: bytes, trusted_pem: bytes, now: datetime) -> bool:
    """True if a client that trusts `trusted_pem` accepts the certificate for the Service's name."""
    store = Store(x509.load_pem_x509_certificates(trusted_pem))
    verifier = (
        PolicyBuilder().store(store).time(now).build_server_verifier(x509.DNSName(NAMES.dns[0]))
    )
    return bool(verifier.verify(x509.load_pem_x509_certificate(certificate_pem), []))


async def test_an_empty_secret_is_filled_served_and_injected():
    rotation = CertificateRotation()
    await rotation.step(timedelta())

    rotation.assert_all_are_trusted()
    assert rotation.replicas[0].is_ready
    assert rotation.replicas[0].trusted_pem == rotation.secret.stored.data["ca.crt"]
    assert set(rotation.secret.stored.data) == {"ca.crt", "ca.key", "tls.crt", "tls.key"}


async def test_nothing_is_written_while_nothing_is_due():
    rotation = CertificateRotation()
    await rotation.step(timedelta())
    await rotation.step(59 * DAY)

    assert rotation.secret.written == 1


async def test_in_three_years_of_rotation_every_client_trusts_every_served_certificate():
    rotation = CertificateRotation(replicas=2)
    cas, certificates = set(), set()
    for look in range(365):
        # The replicas run in turn, so one serves an old certificate while the other has a new one.
        await rotation.step(3 * DAY, replica=look % 2)
        if look:
            rotation.assert_all_are_trusted()
        cas.add(rotation.bundle.ca.certificate.serial_number)
        certificates.add(rotation.bundle.serving.certificate.serial_number)
        assert len(rotation.bundle.trusted) <= 3

    assert len(cas) == 5
    assert len(certificates) > 12


async def test_the_serving_certificate_is_renewed_in_its_last_third_by_the_same_ca():
    rotation = CertificateRotation()
    await rotation.step(timedelta())
    before = rotation.bundle
    await rotation.step(60 * DAY + timedelta(minutes=1))

    assert rotation.bundle.ca.certificate == before.ca.certificate
    assert rotation.bundle.serving.certificate != before.serving.certificate


async def test_the_next_ca_signs_only_after_every_webhook_was_seen_to_trust_it():
    rotation = CertificateRotation()
    await rotation.step(timedelta())
    first = rotation.bundle.ca.certificate
    rotation.anchors.is_broken = True
    with pytest.raises(OSError, match="away"):
        await rotation.step(244 * DAY)
    staged_ca = rotation.bundle.next_ca
    assert staged_ca is not None
    for _ in range(3):
        with pytest.raises(OSError, match="away"):
            await rotation.step(timedelta(minutes=10))
    assert rotation.bundle.ca.certificate == first

    rotation.anchors.is_broken = False
    await rotation.step(timedelta(minutes=10))
    assert rotation.bundle.ca.certificate == first
    await rotation.step(timedelta(minutes=10))
    assert rotation.bundle.ca.certificate == staged_ca.certificate
    assert rotation.bundle.retired == (first,)
    assert "next-ca.key" not in rotation.secret.stored.data
    rotation.assert_all_are_trusted()


async def test_the_next_ca_waits_for_api_servers_to_follow():
    rotation = CertificateRotation()
    await rotation.step(timedelta())
    await rotation.step(244 * DAY)
    await rotation.step(timedelta(seconds=59))
    assert rotation.bundle.next_ca is not None
    await rotation.step(timedelta(seconds=1))
    assert rotation.bundle.next_ca is None


async def test_the_old_cas_key_is_deleted_at_once_and_its_certificate_when_it_expires():
    rotation = CertificateRotation()
    await rotation.step(timedelta())
    key = rotation.bundle.ca.key_pem
    await rotation.step(244 * DAY)
    await rotation.step(timedelta(minutes=5))
    assert key not in rotation.secret.stored.data.values()
    assert len(rotation.bundle.trusted) == 2
    await rotation.step(121 * DAY)
    assert len(rotation.bundle.trusted) == 1


async def test_two_replicas_that_start_at_once_agree():
    rotation = CertificateRotation(replicas=2)
    await asyncio.gather(*(replica.ensure() for replica in rotation.replicas))

    assert rotation.secret.written == 1
    assert rotation.contexts[0]._loaded == rotation.contexts[1]._loaded
    rotation.assert_all_are_trusted()


DAMAGED = {
    "a text that is no certificate": {"tls.crt": b"?"},
    "the key of another": {"tls.key": issue.issue_ca(NOW).key_pem},
    "no CA": {"ca.crt": b""},
    "a CA without its key": {"ca.key": b""},
    "half a next CA": {"next-ca.crt": issue.issue_ca(NOW).certificate_pem},
}


@pytest.mark.parametrize("damage", DAMAGED.values(), ids=DAMAGED.keys())
async def test_a_damaged_secret_is_replaced_and_other_replicas_stay_trusted(
    damage: Mapping[str, bytes],
):
    rotation = CertificateRotation(replicas=2)
    for replica in rotation.replicas:
        await replica.ensure()
    rotation.secret.stored = StoredSecret({**rotation.secret.stored.data, **damage}, "7")
    await rotation.step(timedelta(minutes=1))

    assert rotation.secret.written == 2
    if "ca.crt" not in damage:
        rotation.assert_all_are_trusted()
    await rotation.step(timedelta(minutes=1), replica=1)
    rotation.assert_all_are_trusted()


async def test_a_clock_that_jumps_back_and_forth_adds_a_bounded_number_of_cas():
    rotation = CertificateRotation()
    for _ in range(10):
        await rotation.step(1000 * DAY)
        rotation.assert_all_are_trusted()
        await rotation.step(-1000 * DAY)
        rotation.assert_all_are_trusted()

    assert len(rotation.bundle.trusted) <= 1 + renewal.MAX_RETIRED


async def test_a_new_name_is_in_the_next_certificate():
    rotation = CertificateRotation()
    await rotation.step(timedelta())
    wanted = ServingNames((*NAMES.dns, "webhooks.example.com"))

    assert renewal.decide_renewal(NOW, rotation.bundle, NAMES, is_next_trusted=False) is None
    assert (
        renewal.decide_renewal(NOW, rotation.bundle, wanted, is_next_trusted=False)
        is RenewalStep.ISSUE_SERVING
    )


async def test_a_certificate_without_any_names_is_issued_anew():
    rotation = CertificateRotation()
    await rotation.step(timedelta())
    before, serving = rotation.bundle, rotation.bundle.serving
    builder = x509.CertificateBuilder(
        issuer_name=serving.certificate.issuer,
        subject_name=serving.certificate.subject,
        public_key=serving.certificate.public_key(),
        serial_number=1,
        not_valid_before=serving.certificate.not_valid_before_utc,
        not_valid_after=serving.certificate.not_valid_after_utc,
    )
    nameless = builder.sign(before.ca.key, hashes.SHA256()).public_bytes(Encoding.PEM)
    rotation.secret.stored = StoredSecret(
        {**rotation.secret.stored.data, "tls.crt": nameless}, rotation.secret.stored.version
    )
    await rotation.step(timedelta(minutes=1))

    assert rotation.bundle.ca.certificate == before.ca.certificate
    assert NAMES.are_all_in(rotation.bundle.serving.certificate)
    rotation.assert_all_are_trusted()


async def test_a_failing_pass_is_logged_without_secrets_and_tried_again(
    caplog: pytest.LogCaptureFixture,
):
    rotation = CertificateRotation()
    rotation.anchors.is_broken = True
    with caplog.at_level(logging.INFO):
        running = asyncio.create_task(rotation.replicas[0].run(0.001))
        async with asyncio.timeout(60):
            while rotation.failures < 3:  # noqa: ASYNC110 - a counter has no event
                await asyncio.sleep(0)
            rotation.anchors.is_broken = False
            while not rotation.replicas[0].is_ready:  # noqa: ASYNC110 - see above
                await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait([running])

    assert "could not renew or inject certificates" in caplog.text
    assert "PRIVATE KEY" not in caplog.text


async def failing_passes() -> list[float]:
    """Return when passes ran: three that failed, and two after a change each."""
    rotation = CertificateRotation()
    rotation.anchors.is_broken = True
    rotator = rotation.replicas[0]
    running = asyncio.create_task(rotator.run(100_000.0))
    await asyncio.sleep(5.0)
    rotator.wake()
    await asyncio.sleep(0.25)
    rotator.wake()
    await asyncio.sleep(3.0)
    running.cancel()
    await asyncio.wait([running])
    return rotation.anchors.injected_at


def test_a_change_is_looked_at_within_a_second_after_failed_passes_too() -> None:
    # The delays are 1, 2 and 4 seconds; at least a second is between two passes.
    assert run_in_virtual_time(failing_passes()) == [0.0, 1.0, 3.0, 5.0, 6.0]


def test_certificates_have_the_required_extensions_and_lifetimes():
    ca = issue.issue_ca(NOW)
    serving = issue.issue_serving(ca, NAMES, NOW).certificate

    assert (
        ca.certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.path_length
        == 0
    )
    assert not serving.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert serving.not_valid_before_utc == NOW - timedelta(hours=1)
    assert serving.not_valid_after_utc == NOW + 90 * DAY
    late = issue.issue_serving(ca, NAMES, NOW + 350 * DAY).certificate
    assert late.not_valid_after_utc == ca.certificate.not_valid_after_utc


def test_a_bundle_reads_back_as_it_was_written():
    first = renewal.apply_step(RenewalStep.REPLACE_ALL, None, NAMES, NOW)
    staged_ca = renewal.apply_step(RenewalStep.STAGE_CA, first, NAMES, NOW)
    for bundle in (
        first,
        staged_ca,
        renewal.apply_step(RenewalStep.PROMOTE_CA, staged_ca, NAMES, NOW),
    ):
        again = bundles.parse(bundles.render(bundle))
        assert again is not None
        assert bundles.render(again) == bundles.render(bundle)
    assert b"PRIVATE" not in staged_ca.trusted_pem
    assert first.ca.certificate.public_bytes(Encoding.PEM) in staged_ca.trusted_pem
