"""Atom updates: one sweep over the atoms for fixed supports of the codes."""

from rkdl._learning.atom_updates.aksvd import AKSVDUpdate
from rkdl._learning.atom_updates.base import AtomUpdate, Sweep
from rkdl._learning.atom_updates.gram import GramUpdate

ATOM_UPDATES: dict[str, AtomUpdate] = {"gram": GramUpdate(), "aksvd": AKSVDUpdate()}

__all__ = ["ATOM_UPDATES", "AKSVDUpdate", "AtomUpdate", "GramUpdate", "Sweep"]
