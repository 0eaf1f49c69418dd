"""The descriptions of KV caches by which a decode executor finds those that it cannot load."""

from __future__ import annotations

from dataclasses import replace

from cornserve_executors.llm.kv_format import KvFormat, KvMetadata

FORMAT = KvFormat("model", None, "bfloat16", 128, (2, 1, 128, 8, 64), 32)


def test_a_prompt_takes_whole_blocks_in_each_layer() -> None:
    block = 2 * 128 * 8 * 64 * 2

    assert FORMAT.nbytes(1) == FORMAT.nbytes(128) == 32 * block
    assert FORMAT.nbytes(129) == 2 * 32 * block


def test_the_metadata_of_a_tensor_describe_it() -> None:
    assert KvMetadata.decode(KvMetadata(FORMAT, "digest", 256).encode()) == KvMetadata(FORMAT, "digest", 256)


def test_the_first_difference_of_two_formats_is_named() -> None:
    assert FORMAT.difference(FORMAT) == ""
    assert FORMAT.difference(replace(FORMAT, dtype="float16")) == "dtype bfloat16 and float16"
