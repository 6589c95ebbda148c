"""What the catalogue loses without some of the rules: the proof that a rule is needed, and the way to find a dead one.

Each entry is derived once with all rules. A rule that matched nothing there cannot matter. For the others the same
search is repeated without the rule (or the group); only where that does not reach the same fused form is the entry
derived anew, and the two results are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache
from multiprocessing import get_context
from typing import Any, Literal

from redfuser.derivation import Derivation, Limits, Verdict, derive_cascade
from redfuser.errors import RedfuserError
from redfuser.ir import Expr, Op, walk
from redfuser.rules import default
from redfuser.rules.language import RuleSet
from redfuser.zoo.catalogue import ENTRIES
from redfuser.zoo.outcome import carried

LIMITS = Limits(seconds=60.0)
"""Nodes and iterations bind first: the same losses on every machine."""

Kind = Literal["crash", "verdict", "certificate", "accumulators", "operations"]
KINDS: tuple[Kind, ...] = ("crash", "verdict", "certificate", "accumulators", "operations")
_RANK = (Verdict.FUSIBLE, Verdict.PARTLY, Verdict.NOT_FUSIBLE, Verdict.NOT_FOUND)


@dataclass(frozen=True)
class Loss:
    """What became worse for one entry.

    kind  "crash" (an exception: a defect), "verdict" (more passes, or a weaker verdict), "certificate" (no longer
          decided), "accumulators" (more of them), "operations" (the same otherwise, but dearer to compute)
    """

    part: str
    entry: str
    kind: Kind
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.entry}: {self.before} becomes {self.after}"

    def to_dict(self) -> dict[str, str]:
        """As JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class Form:
    """What is compared: passes, verdict, certificate, accumulators, operations."""

    passes: int
    verdict: Verdict
    certain: bool
    accumulators: int
    operations: int

    @classmethod
    def of(cls, d: Derivation) -> Form:
        """Of a derivation."""
        f = d.fused
        exprs = (*(a.body for a in f.accumulators), *(x.expr for x in f.dependencies), *(e for _, e in f.corrections),
                 *(e for _, e in f.epilogue))
        return cls(d.passes, d.verdict, d.certificate.valid, carried(f), _operations(exprs))


def _operations(exprs: Sequence[Expr]) -> int:
    """Number of different operations in some expressions."""
    return len({x for e in exprs for x in walk(e) if isinstance(x, Op)})


def loss_of(part: str, entry: str, before: Form, after: Form) -> Loss | None:
    """The gravest thing that became worse; None where a graver one became better."""
    def found(kind: Kind, a: object, b: object) -> Loss:
        return Loss(part, entry, kind, str(a), str(b))

    ranks = [(f.passes, _RANK.index(f.verdict)) for f in (before, after)]
    if ranks[0] != ranks[1]:
        return found("verdict", f"{before.verdict} ({before.passes})",
                     f"{after.verdict} ({after.passes})") if ranks[1] > ranks[0] else None
    if after.certain != before.certain:
        return found("certificate", "a valid certificate", "an undecided one") if before.certain else None
    if after.accumulators != before.accumulators:
        return found("accumulators", f"{before.accumulators} accumulators",
                     after.accumulators) if after.accumulators > before.accumulators else None
    if after.operations > before.operations:
        return found("operations", f"{before.operations} operations", after.operations)
    return None


@cache
def _full(name: str) -> Derivation | None:
    """The derivation of an entry with all rules; None when the entry has no single cascade."""
    try:
        return derive_cascade(ENTRIES[name].cascade(), limits=LIMITS)
    except RedfuserError:
        return None


def _try(part: str, laws: frozenset[str], entry: str) -> Loss | None:
    """What an entry loses without some laws."""
    full = _full(entry)
    return None if full is None else loss_without(full, part, laws, entry, default)


def loss_without(full: Derivation, part: str, laws: frozenset[str], entry: str, rules: RuleSet,
                 allow: Sequence[str] = ()) -> Loss | None:
    """What a derivation with `rules` (and the approximate groups `allow`) loses without those of the names `laws`."""
    if not full.matched & laws:
        return None
    if full.reaches(frozenset(x.name for x in rules) - laws):
        return None
    rest = RuleSet(f"without {part}", tuple(x for x in rules if x.name not in laws))
    try:
        without = derive_cascade(full.cascade, rules=rest, allow=allow, limits=LIMITS)
    except Exception as error:  # fewer rules may cost a fusion, never a crash: it is shown, and the rest still counts
        return Loss(part, entry, "crash", str(full.verdict), f"{type(error).__name__}: {error}")
    return loss_of(part, entry, Form.of(full), Form.of(without))


def ablate(parts: Mapping[str, RuleSet], entries: Sequence[str] = tuple(ENTRIES), *, enough: int | None = None,
           jobs: int = 1, progress: Callable[[str], None] = lambda _: None) -> dict[str, list[Loss]]:
    """What is lost without each part of the default rules.

    Parameters
    ----------
    parts
        name -> the laws that are left out together.
    entries
        names of entries to derive.
    enough
        stop looking after so many losses of a part; None: try all entries.
    progress
        called with the name of each part that is done.
    """
    names = {part: frozenset(x.name for x in laws) for part, laws in parts.items()}
    blocks = [list(entries)[k::jobs] for k in range(jobs)]
    found: dict[str, list[Loss]] = {part: [] for part in parts}
    for part, losses in _all_losses(names, blocks, enough, jobs):
        found[part] += losses
        progress(part)
    order = {name: i for i, name in enumerate(ENTRIES)}
    return {part: sorted(x, key=lambda loss: (KINDS.index(loss.kind), order[loss.entry]))[:enough]
            for part, x in found.items()}


def _all_losses(names: Mapping[str, frozenset[str]], blocks: Sequence[Sequence[str]], enough: int | None,
                jobs: int) -> Iterator[tuple[str, list[Loss]]]:
    if jobs <= 1:
        yield from _block((dict(names), blocks[0], enough))
        return
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:  # each process keeps the entries it derived
        for done in pool.map(_block_list, [(dict(names), block, enough) for block in blocks]):
            yield from done


Task = tuple[Mapping[str, frozenset[str]], Sequence[str], int | None]


def _block_list(task: Task) -> list[tuple[str, list[Loss]]]:
    return list(_block(task))


def _block(task: Task) -> Iterator[tuple[str, list[Loss]]]:
    """Losses of every part over a block of entries, quick derivations first."""
    names, block, enough = task
    quick = sorted((e for e in block if _full(e) is not None), key=lambda e: sum(s.nodes for s in _steps(e)))
    for part, laws in names.items():
        losses: list[Loss] = []
        for entry in quick:
            loss = _try(part, laws, entry)
            losses += [] if loss is None else [loss]
            if enough is not None and sum(x.kind != "operations" for x in losses) >= enough:
                break
        yield part, losses


def _steps(entry: str) -> Any:
    full = _full(entry)
    return () if full is None else full.timeline
