"""The key that signs service account tokens, made without openssl or any package."""

from __future__ import annotations

import base64
import secrets

# Order of the NIST P-256 group (FIPS 186-4, D.1.2.3): a private key is from 1 to the order minus
# one.
P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551

# RFC 5915: SEQUENCE (49 bytes) { INTEGER 1, OCTET STRING (32 bytes) …, [0] { OBJECT IDENTIFIER
# prime256v1 } }
HEAD = bytes.fromhex("30310201010420")
TAIL = bytes.fromhex("a00a06082a8648ce3d030107")


def new_ec_private_key() -> str:
    """Return a new P-256 private key as PEM.

    The public half is left out: Kubernetes (Go) computes it.
    """
    number = secrets.randbelow(P256_ORDER - 1) + 1
    der = HEAD + number.to_bytes(32, "big") + TAIL
    body = base64.encodebytes(der).decode().strip()
    return f"-----BEGIN EC PRIVATE KEY-----\n{body}\n-----END EC PRIVATE KEY-----\n"
