"""The laboratory: check the rules of a file, derive the catalogue with them and without, compare."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import Any

from redfuser.derivation import derive_cascade
from redfuser.lab.compare import Comparison, compare, in_words
from redfuser.lab.load import RuleFile, load_rules
from redfuser.lab.state import State
from redfuser.rules import Check, check_rule
from redfuser.rules.conditions import Need, needed_conditions
from redfuser.zoo import ENTRIES, Entry, select
from redfuser.zoo.ablation import LIMITS, loss_without

Progress = Callable[[str, int, int], None]
"""Called with what is done, how much of it, and of how much."""


@dataclass(frozen=True)
class Laboratory:
    """What a run found.

    checks       one per rule of the file
    needs        rule -> what its conditions do for its truth
    comparisons  one per entry, in the order of the catalogue, those of the file first; empty when a rule is wrong
    matrix       rule -> entry -> what the entry loses without the rule ("" for nothing); empty unless asked for
    """

    file: RuleFile
    checks: tuple[Check, ...]
    needs: Mapping[str, tuple[Need, ...]]
    comparisons: tuple[Comparison, ...] = ()
    matrix: Mapping[str, Mapping[str, str]] | None = None

    @property
    def wrong(self) -> tuple[Check, ...]:
        """The rules that are refused."""
        return tuple(c for c in self.checks if not c.ok)

    @property
    def gains(self) -> tuple[Comparison, ...]:
        """Entries that the rules make better."""
        return tuple(c for c in self.comparisons if c.change == "gain")

    @property
    def losses(self) -> tuple[Comparison, ...]:
        """Entries that they make worse."""
        return tuple(c for c in self.comparisons if c.change == "loss")

    @property
    def ok(self) -> bool:
        """No rule is wrong, and nothing became worse."""
        return not self.wrong and not self.losses

    @property
    def unused(self) -> tuple[str, ...]:
        """Rules that matched nothing in any entry."""
        used = {name for c in self.comparisons for name in c.after.matched}
        return tuple(x.name for x in self.file.rules if x.name not in used)

    def growth(self) -> dict[str, float]:
        """Nodes, rounds and processor time of all derivations with the rules, over those without."""
        both = [c for c in self.comparisons if not c.before.problem and not c.after.problem]
        return {what: _ratio(sum(getattr(c.after, what) for c in both), sum(getattr(c.before, what) for c in both))
                for what in ("nodes", "rounds", "seconds")}

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        rules = [{"name": x.name, "law": x.law, "text": str(x), "ok": c.ok, "samples": c.samples,
                  "counterexample": None if c.ok else dict(c.counterexample or {}), "report": str(c),
                  "conditions": [f"{n.condition} {n.word}" for n in self.needs.get(x.name, ())]}
                 for x, c in zip(self.file.rules, self.checks, strict=True)]
        return {"file": str(self.file.path), "ok": self.ok, "rules": rules,
                "entries": [c.to_dict() for c in self.comparisons], "gains": [c.entry for c in self.gains],
                "losses": [c.entry for c in self.losses], "unused": list(self.unused) if self.comparisons else [],
                "growth": self.growth() if self.comparisons else None,
                "ablation": None if self.matrix is None else {k: dict(v) for k, v in self.matrix.items()}}


def _ratio(after: float, before: float) -> float:
    return round(after / before, 3) if before else 1.0


def chosen_entries(file: RuleFile, names: Sequence[str] = (), sample: int | None = None, seed: int = 0) -> list[Entry]:
    """The entries of a run: those of the file, then those of the catalogue (by name, a random sample, or all).

    Raises
    ------
    RedfuserError
        for an unknown name, with a suggestion.
    """
    own = {e.name: e for e in file.entries}
    if names:
        others = [n for n in names if n not in own]
        return [own[n] for n in names if n in own] + (select(others) if others else [])
    rest = list(ENTRIES.values())
    if sample is not None and sample < len(rest):
        rest = random.Random(seed).sample(rest, sample)
    return [*own.values(), *rest]


def run_lab(path: Path, *, names: Sequence[str] = (), sample: int | None = None, seed: int = 0, ablate: bool = False,
            jobs: int = 1, state: Path | None = None, fresh: bool = False,
            progress: Progress = lambda *_: None) -> Laboratory:
    """Check the rules of a file and compare the catalogue with them and without.

    Parameters
    ----------
    names, sample, seed
        which entries: these, so many drawn by seed, or all.
    ablate
        also derive every entry that changed without each single rule of the file.
    state, fresh
        where the findings are kept for a later run (by default in the cache), and whether those there are forgotten.

    Raises
    ------
    CommandError, RuleError, RedfuserError
        for files, rules, and names that are wrong; see `load_rules`, `chosen_entries`, `State`.
    """
    file = load_rules(path)
    checks = tuple(check_rule(law) for law in file.rules)
    needs = {law.name: needed_conditions(law) for law, c in zip(file.rules, checks, strict=True) if c.ok}
    if not all(checks):
        return Laboratory(file, checks, needs)
    entries = chosen_entries(file, names, sample, seed)
    known = State.of(file, state, fresh)
    left = [e for e in entries if e.name not in known.done]
    progress("deriving", len(entries) - len(left), len(entries))
    for k, found in enumerate(_compared(path, left, jobs), len(entries) - len(left) + 1):
        known.add(found)
        progress("deriving", k, len(entries))
    comparisons = tuple(known.done[e.name] for e in entries)
    matrix = _matrix(file, entries, comparisons, known, progress) if ablate else None
    return Laboratory(file, checks, needs, comparisons, matrix)


def _compared(path: Path, entries: Sequence[Entry], jobs: int) -> Iterator[Comparison]:
    """Comparisons as they are ready."""
    if jobs <= 1 or len(entries) < 2:
        yield from (_compare_named(path, e.name) for e in entries)
        return
    context = get_context("spawn")
    stop = context.Event()
    pool = ProcessPoolExecutor(jobs, context, initializer=_begin, initargs=(stop,))
    try:
        for task in as_completed([pool.submit(_compare_named, path, e.name) for e in entries]):
            yield task.result()
    except BaseException:
        stop.set()  # what is under way is lost: it may take long
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()


def _begin(stop: Any) -> None:
    """In a worker: Ctrl-C is for the process that writes the state; it ends this one by `stop`, or by its own end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_watch, args=(stop,), daemon=True).start()


def _watch(stop: Any) -> None:
    parent = parent_process()
    while parent is not None and parent.is_alive() and not stop.wait(0.5):
        pass
    os._exit(1)


@cache
def _loaded(path: Path) -> RuleFile:
    return load_rules(path)


def _compare_named(path: Path, name: str) -> Comparison:
    """In any process: functions and monoids travel by name."""
    file = _loaded(path)
    own = {e.name: e for e in file.entries}
    return compare(own[name] if name in own else ENTRIES[name], file.joined(), file.names, file.approximate)


def _matrix(file: RuleFile, entries: Sequence[Entry], comparisons: Sequence[Comparison], known: State,
            progress: Progress) -> dict[str, dict[str, str]]:
    """What every entry that the rules made better loses without each of those that matched it."""
    better = [(e, c) for e, c in zip(entries, comparisons, strict=True) if c.change == "gain"]
    cells = [(law.name, e, c) for e, c in better for law in file.rules]
    for k, (rule, entry, found) in enumerate(cells, 1):
        if (rule, entry.name) not in known.ablated:
            kind = _without(file, rule, entry) if rule in found.after.matched else ""
            known.add_ablated(rule, entry.name, kind)
        progress("ablating", k, len(cells))
    return {law.name: {e.name: known.ablated[law.name, e.name] for e, _ in better} for law in file.rules}


def _without(file: RuleFile, rule: str, entry: Entry) -> str:
    gone = {x.name for x in file.rules if x.name == rule}
    allow = tuple(g for g in file.approximate if any(x.group == g and x.name not in gone for x in file.rules))
    full = derive_cascade(entry.cascade(), rules=file.joined(), allow=file.approximate, limits=LIMITS)
    found = loss_without(full, rule, frozenset((rule,)), entry.name, file.joined(), allow)
    return "" if found is None else in_words(found.kind, found.before, found.after)
