"""The pure core of both agents: decode records, join outcomes, keep a partition's rows. No I/O."""
