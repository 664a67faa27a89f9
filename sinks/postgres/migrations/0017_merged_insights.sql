-- Merged runs keep their insights, which the run that stands for them counts by this index.

CREATE INDEX episodes_insights ON episodes (tenant, merged_into)
    WHERE merged_into IS NOT NULL AND insights <> '{}';
