"""Issuers of tokens, each with its own key pair, published as a JWK."""

from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm


class Signer:
    """Signs with one key by one algorithm."""

    def __init__(self, kid: str | None, algorithm: str, private: Any) -> None:
        self.kid = kid
        self.algorithm = algorithm
        self._private = private

    @classmethod
    def rsa(cls, kid: str | None = "rsa", *, bits: int = 2048, algorithm: str = "RS256") -> "Signer":
        return cls(kid, algorithm, rsa.generate_private_key(public_exponent=65537, key_size=bits))

    @classmethod
    def ec(cls, kid: str | None = "ec") -> "Signer":
        return cls(kid, "ES256", ec.generate_private_key(ec.SECP256R1()))

    @classmethod
    def ed(cls, kid: str | None = "ed") -> "Signer":
        return cls(kid, "EdDSA", ed25519.Ed25519PrivateKey.generate())

    @property
    def jwk(self) -> dict[str, Any]:
        """The public half, as it is published."""
        return self._as_jwk(self._private.public_key())

    @property
    def private_jwk(self) -> dict[str, Any]:
        """The half that must never be published."""
        return self._as_jwk(self._private)

    @property
    def public_pem(self) -> bytes:
        """The public half, as text that anyone can have."""
        pem: bytes = self._private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        return pem

    def sign(self, claims: dict[str, Any], **headers: Any) -> str:
        named = {} if self.kid is None else {"kid": self.kid}
        return jwt.encode(claims, self._private, algorithm=self.algorithm, headers={**named, **headers})

    def _as_jwk(self, key: Any) -> dict[str, Any]:
        shape: Any = {"R": RSAAlgorithm, "P": RSAAlgorithm, "E": ECAlgorithm}.get(self.algorithm[0])
        shape = OKPAlgorithm if self.algorithm == "EdDSA" else shape
        named = {} if self.kid is None else {"kid": self.kid}
        return {**shape.to_jwk(key, as_dict=True), **named}
