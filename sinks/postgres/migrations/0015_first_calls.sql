-- No query reads this index of episodes: ranking compares first calls in memory. It cost the memory
-- worker an insertion for each episode.

DROP INDEX IF EXISTS episodes_first;
