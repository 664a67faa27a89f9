"""Records: batches of them, decoding, dead letters, offsets, partitions."""
