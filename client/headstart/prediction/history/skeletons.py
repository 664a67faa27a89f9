"""Arguments without their values: which leaves a call has, and how they are put together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headstart.prediction.history.json_leaves import Structure, any_index, filled, structure_of
from headstart.prediction.stable_hash import Hash, combined


class LeafPlace(NamedTuple):
    """Where a leaf is, by hashes."""

    exact: int  # the tool and the path
    any_index: int  # the tool and the path, with any index of a list
    path_hash: int
    name_hash: int  # the last name of the path


class Skeleton:
    """The structure of the arguments of a call. It contains names that the caller chose."""

    __slots__ = ("identity", "leaves", "paths", "structure", "tool")

    def __init__(self, tool: str, paths: Sequence[str], structure: Structure, hash_text: Hash):
        self.tool = tool
        self.paths = tuple(paths)
        self.structure = structure
        self.identity = skeleton_identity(tool, paths, hash_text)
        self.leaves = tuple(_place(hash_text(tool), path, hash_text) for path in paths)

    @property
    def size(self) -> int:
        """About how many bytes of memory it takes."""
        return 400 + sum(2 * len(path) + 300 for path in self.paths)

    def arguments(self, values: Sequence[object]) -> dict[str, object]:
        """Return arguments of this structure."""
        found = filled(self.structure, iter(values))
        assert isinstance(found, dict)
        return found

    @staticmethod
    def of(tool: str, arguments: object, paths: Sequence[str], hash_text: Hash) -> Skeleton:
        """Return the skeleton of arguments whose leaves have these paths."""
        return Skeleton(tool, paths, structure_of(arguments) if paths else {}, hash_text)


def skeleton_identity(tool: str, paths: Sequence[str], hash_text: Hash) -> int:
    """Return the hash of a skeleton."""
    return hash_text(skeleton_key(tool, paths))


def skeleton_key(tool: str, paths: Sequence[str]) -> str:
    """Return the text whose hash is that of a skeleton."""
    return "\0".join((str(len(tool)), tool, *paths))


def _place(tool: int, path: str, hash_text: Hash) -> LeafPlace:
    path_hash, name = hash_text(path), path.rpartition(".")[2]
    exact, general = combined(tool, path_hash), any_index(path)
    return LeafPlace(
        exact,
        exact if general == path else combined(tool, hash_text(general)),
        path_hash,
        path_hash if name == path else hash_text(name),
    )
