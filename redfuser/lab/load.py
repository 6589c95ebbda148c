"""What a rule file holds."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from redfuser.lab.files import CommandError, load_module
from redfuser.rules import RuleSet, default, ruleset
from redfuser.rules.language import Fact, Law, Rule
from redfuser.zoo import ENTRIES, Entry, Family


@dataclass(frozen=True)
class RuleFile:
    """What a rule file holds.

    rules    its rules and facts: those that stand in variables of the module, and those of rule sets there
    entries  its cascades: those of every `redfuser.zoo.Family` in a variable
    digest   of its text
    """

    path: Path
    rules: RuleSet
    entries: tuple[Entry, ...]
    digest: str

    @property
    def names(self) -> frozenset[str]:
        """Names of its rules."""
        return frozenset(x.name for x in self.rules)

    @property
    def approximate(self) -> tuple[str, ...]:
        """Groups of its approximate rules: they are allowed in the laboratory."""
        return tuple(dict.fromkeys(x.group for x in self.rules if isinstance(x, Rule) and x.truth == "approximate"))

    def joined(self) -> RuleSet:
        """The default rules and those of the file."""
        return default + self.rules


def load_rules(path: Path) -> RuleFile:
    """Run a rule file and collect what it defines.

    Raises
    ------
    CommandError
        when the file cannot be run, or holds no rule, or an entry is called like one of the catalogue.
    RuleError
        when two different rules share a name, also with a rule of redfuser.
    """
    module = load_module(path)
    known = frozenset(default)
    laws: list[Law] = []
    for value in vars(module).values():
        found = (value,) if isinstance(value, (Rule, Fact)) else value if isinstance(value, RuleSet) else ()
        laws += [x for x in found if x not in known and x not in laws]
    if not laws:
        raise CommandError(f"{path} defines no rule: decorate a function that returns two sides with rf.rule")
    entries = [e for v in vars(module).values() if isinstance(v, Family) for e in v.entries]
    for e in entries:
        if e.name in ENTRIES:
            raise CommandError(f"{path}: the catalogue has an entry {e.name!r} already; rename yours")
    made = RuleFile(path, ruleset(path.stem, laws), tuple(dict.fromkeys(entries)),
                    hashlib.sha256(path.read_bytes()).hexdigest()[:16])
    made.joined()  # names that clash are an error now, not after the first entry
    return made
