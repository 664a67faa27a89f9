"""What the session's database of episodes holds."""

from __future__ import annotations

from typing import NamedTuple

from bench.support.made_episodes import MadeEpisode


class StoredEpisodes(NamedTuple):
    dsn: str
    """Of the role that sees one tenant."""
    owner_dsn: str
    made: list[MadeEpisode]

    def of(self, tenant: str) -> dict[int, MadeEpisode]:
        """Return a tenant's episodes by id."""
        return {each.id: each for each in self.made if each.tenant == tenant}
