"""Fills the Secrets of an installation with random values: `python -m cornserve.control.generated_secrets`.

The chart creates the Secrets, empty or with the values that users give, and runs this program once for each revision of
the release. Values that exist are kept. Pods that need the others wait for them.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import secrets
import sys
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from functools import partial

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from cornserve.instance_secret import KEY_BYTES
from cornserve.kubernetes.client import KubeClient
from cornserve.kubernetes.errors import KubeApiError, KubeConfigError
from cornserve.kubernetes.resources import SECRETS

Data = Mapping[str, str]

_AUTHORITY = "cornserve-authority"
_SKEW = datetime.timedelta(minutes=5)
"""Clocks of nodes may be behind."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instance", metavar="SECRET", help="the Secret with the secret of the instance")
    parser.add_argument("--access", metavar="SECRET", help="the Secret with the API keys and the admin token")
    parser.add_argument("--tls", metavar="SECRET", help="the Secret with the certificate of all processes")
    parser.add_argument("--tls-days", type=int, default=3650, help="the validity of the certificate")
    options = parser.parse_args()
    try:
        asyncio.run(_fill(options))
    except (KubeConfigError, KubeApiError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


async def _fill(options: argparse.Namespace) -> None:
    async with KubeClient.connect(field_manager="cornserve-secrets") as client:
        if options.instance:
            await _fill_secret(client, options.instance, instance_data)
        if options.access:
            await _fill_secret(client, options.access, access_data)
        if options.tls:
            await _fill_secret(client, options.tls, partial(tls_data, days=options.tls_days))


async def _fill_secret(client: KubeClient, name: str, missing: Callable[[Data], Data]) -> None:
    secret = await client.get(SECRETS, name)
    found = secret.get("data") or {}
    added = missing({key: b64decode(value).decode() for key, value in found.items()})
    if added:
        data = {key: b64encode(value.encode()).decode() for key, value in added.items()}
        # Fails if the Job of another revision has filled the Secret meanwhile: pods may use its values already.
        version = {"resourceVersion": secret["metadata"]["resourceVersion"]}
        await client.merge_patch(SECRETS, name, {"metadata": version, "data": data})
    print(f"{name}: created {', '.join(added) or 'nothing'}")


def instance_data(current: Data) -> Data:
    """Returns the values that the Secret lacks."""
    return {} if "secret" in current else {"secret": secrets.token_hex(KEY_BYTES)}


def access_data(current: Data) -> Data:
    """Returns the values that the Secret lacks. `api-key` is the generated one of `api-keys`."""
    added = {} if "admin-token" in current else {"admin-token": secrets.token_hex(KEY_BYTES)}
    if "api-keys" not in current:
        key, metrics_key = secrets.token_hex(KEY_BYTES), secrets.token_hex(KEY_BYTES)
        keys = f"{key}\n# for Prometheus\n{metrics_key}\n"
        added |= {"api-key": key, "metrics-key": metrics_key, "api-keys": keys}
    return added


def tls_data(current: Data, days: int) -> Data:
    """Returns a certificate and its authority if the Secret lacks them. The key of the authority is not stored."""
    if "tls.key" in current:
        return {}
    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority = _certificate(_AUTHORITY, authority_key, authority_key, days, is_authority=True)
    certificate = _certificate("cornserve", key, authority_key, days, is_authority=False)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return {
        "ca.crt": authority.public_bytes(Encoding.PEM).decode(),
        "tls.crt": certificate.public_bytes(Encoding.PEM).decode(),
        "tls.key": private.decode(),
    }


def _certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    authority_key: ec.EllipticCurvePrivateKey,
    days: int,
    *,
    is_authority: bool,
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    authority_id = x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key())
    builder = (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(_name(_AUTHORITY))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(authority_id), critical=False)
    )
    return builder.sign(authority_key, hashes.SHA256())


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


if __name__ == "__main__":
    sys.exit(main())
