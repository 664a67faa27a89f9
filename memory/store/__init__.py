"""The memory's tables: outbox, episodes, vectors and models, each statement named in `sql/`."""
