import numpy as np

from hornbook.data.shards import PARTS, ShardWriter, open_shard, shard_file, token_dtype
from hornbook.files import sha256


def test_dtype_follows_the_vocabulary():
    assert token_dtype(65_536) == np.uint16 and token_dtype(65_537) == np.uint32


def test_what_is_written_is_read(tmp_path):
    generator = np.random.default_rng(0)
    writer = ShardWriter(tmp_path, token_dtype(70_000), next_index=3)
    tokens = generator.integers(0, 70_000, 103).astype(np.uint32)
    starts = generator.integers(0, 2, 103).astype(bool)
    writer.add(tokens[:50], starts[:50], np.array([20, 30]), np.array([0]))
    writer.add(tokens[50:], starts[50:], np.array([3, 40, 10]), np.array([1]))
    entry = writer.close_shard()
    assert entry["name"] == "shard-00003"
    assert (entry["tokens"], entry["sentences"], entry["documents"]) == (103, 5, 2)
    assert entry["sha256"] == {part: sha256(shard_file(tmp_path, 3, part)) for part in PARTS}
    shard = open_shard(tmp_path, 3)
    assert shard.tokens.dtype == np.uint32 and np.array_equal(shard.tokens, tokens)
    assert shard.sentences.dtype == np.uint32 and shard.sentences.tolist() == [0, 20, 50, 53, 93, 103]
    assert shard.documents.dtype == np.uint32 and shard.documents.tolist() == [0, 3, 5]
    assert shard.word_starts.dtype == np.uint8 and np.array_equal(shard.word_starts, np.packbits(starts))
    for start in range(0, 104, 5):
        for stop in range(start, 104, 7):
            assert np.array_equal(shard.word_starts_in(start, stop), starts[start:stop])
    assert shard.word_starts_in(0, 8).dtype == bool
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(f"shard-00003.{part}.npy" for part in PARTS)
    assert writer.num_tokens == 0 and writer.next_index == 4
