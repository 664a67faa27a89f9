-- The statements of the migration runner.

-- name: lock
-- One runner at a time, until its transaction ends.
SELECT pg_advisory_xact_lock(hashtextextended('headstart migrations', 0))

-- name: create_record
-- The applied migrations, with their text.
CREATE TABLE IF NOT EXISTS schema_migrations (
    version    integer     PRIMARY KEY,
    name       text        NOT NULL,
    checksum   text        NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
)

-- name: has_record
-- Whether any migration was ever applied.
SELECT to_regclass('schema_migrations') IS NOT NULL

-- name: applied
-- The applied migrations, oldest first.
SELECT version, name, checksum FROM schema_migrations ORDER BY version

-- name: record
-- Record one migration.
INSERT INTO schema_migrations (version, name, checksum)
VALUES (%(version)s, %(name)s, %(checksum)s)
