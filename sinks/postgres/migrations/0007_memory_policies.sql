-- Training of ranking policies: how far each version has learned, and the next runs to learn.

-- What a version begins from that is not a weight: the id of the last run, chance, standing.
ALTER TABLE memory_policies ADD COLUMN state jsonb NOT NULL DEFAULT '{}';

-- Finished runs that can be asked for, in the order in which they are learned.
CREATE INDEX episodes_learned ON episodes (tenant, ended, id)
    WHERE outcome IS NOT NULL AND query IS NOT NULL AND calls IS NOT NULL;
