"""Describes KV caches, so that an engine loads only those of its format and of its prompt."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import prod
from typing import Any, Self

from cornserve.transport.tensor import DTYPE_BYTES


@dataclass(frozen=True, slots=True)
class KvFormat:
    """The format of the keys and values of a model in an engine. A tensor has whole blocks, layer after layer."""

    model: str
    revision: str | None
    dtype: str
    block_size: int
    """Tokens of a block."""
    block_shape: tuple[int, ...]
    """The shape of a block of one layer, with its axis of size 1."""
    layers: int

    @property
    def block_bytes(self) -> int:
        """The size of a block in one layer."""
        return DTYPE_BYTES[self.dtype] * prod(self.block_shape)

    @property
    def token_block_bytes(self) -> int:
        """The size of a block in all layers."""
        return self.layers * self.block_bytes

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Self:
        """Returns the format with these fields, whose shape may be a list."""
        return cls(**{**fields, "block_shape": tuple(fields["block_shape"])})

    def blocks(self, tokens: int) -> int:
        return -(-tokens // self.block_size)

    def nbytes(self, tokens: int) -> int:
        """The size of the tensor for a prompt."""
        return self.blocks(tokens) * self.token_block_bytes

    def difference(self, other: KvFormat) -> str:
        """Returns the first field in which two formats differ, and both values. Empty if they are equal."""
        for name in self.__slots__:
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                return f"{name} {mine} and {theirs}"
        return ""


@dataclass(frozen=True, slots=True)
class KvMetadata:
    """The metadata of a tensor with the KV cache of a prompt, and of tokens that follow it."""

    format: KvFormat | None = None
    """Without a format, the keys and values are zeros, which fit every model. The tensor does not contain them."""
    digest: str = ""
    """Identifies the tokens. Empty without a format."""
    tokens: int = 0
    """The number of tokens. 0 without a format: those of the prompt."""
    cached_tokens: int = 0
    """The tokens of the prompt whose KV cache was computed for an earlier request."""

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, metadata: bytes) -> Self:
        fields = json.loads(metadata)
        format = fields["format"] and KvFormat.of(fields["format"])
        return cls(format, fields["digest"], fields["tokens"], fields["cached_tokens"])
