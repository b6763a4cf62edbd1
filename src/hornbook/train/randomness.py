"""All randomness of a run is seeded from (seed, number of the batch, purpose): nothing carries over between steps."""

import hashlib


def seed_of(*parts: int | str) -> int:
    """63 bits that depend on every part.

    >>> seed_of(0, 1, "draw") != seed_of(0, 2, "draw")
    True
    """
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
