"""A catalogue of cascaded reductions with the right answer: which fuse into one pass, with how few accumulators."""

from redfuser.zoo.catalogue import ENTRIES, FAMILIES, KNOWN_WRONG, select
from redfuser.zoo.entry import Argument, Entry, Family, canonical
from redfuser.zoo.outcome import Outcome, examine, examine_all

__all__ = ["ENTRIES", "FAMILIES", "KNOWN_WRONG", "Argument", "Entry", "Family", "Outcome", "canonical", "examine",
           "examine_all", "select"]
