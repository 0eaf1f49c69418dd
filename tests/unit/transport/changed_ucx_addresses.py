"""A process that connects to addresses of UCX with changed bytes. Prints how many it has refused, and the others."""

from __future__ import annotations

import asyncio
import random
import sys

from cornserve.transport.pull.ucx import UcxFabric


def changed(address: bytes, order: random.Random) -> bytes:
    content = bytearray(address)
    for _ in range(order.choice([1, 1, 2, 5])):
        position = order.randrange(len(content))
        match order.randrange(4):
            case 0:
                content[position] ^= 1 << order.randrange(8)
            case 1:
                content[position] = order.choice([0, 1, 0x7F, 0x80, 0xFF])
            case 2:
                del content[position]
            case 3:
                content.insert(position, order.randrange(256))
    return bytes(content)


async def main(count: int, seed: int) -> None:
    order, refused = random.Random(seed), 0
    fabric = await UcxFabric.start()
    peer = fabric.link()
    address = await peer.open()
    for number in range(count):
        link = fabric.link()
        await link.open()
        try:
            await link.connect(changed(address, order))
            await link.offer(memoryview(bytes(100_000)), tag=number)  # the library connects
            await asyncio.sleep(0.01)
        except OSError:
            refused += 1
        link.close()
        await link.wait_closed()
    working, tag = fabric.link(), count
    peer = fabric.link()
    addresses = await working.open(), await peer.open()
    await working.connect(addresses[1])
    await peer.connect(addresses[0])
    await working.offer(memoryview(b"x" * 100_000), tag)
    into = bytearray(100_000)
    await peer.fetch(b"", memoryview(into), tag)
    assert into == b"x" * 100_000
    await fabric.close()
    print(refused, count - refused)


if __name__ == "__main__":
    asyncio.run(main(*map(int, sys.argv[1:])))
