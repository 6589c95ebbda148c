"""What a run of the laboratory has found so far, kept in a file, so that a run that was stopped goes on."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from redfuser import __version__
from redfuser.lab.compare import Comparison
from redfuser.lab.files import CommandError
from redfuser.lab.load import RuleFile
from redfuser.runtime.cache import cache_directory, digest
from redfuser.runtime.derivations import code_state, code_version

FORMAT = "redfuser-lab-1"


def _code() -> tuple[str, ...]:
    """The version, and the state of all code that a finding depends on."""
    packages = ("api", "codegen", "codegen.c", "codegen.passes", "extract", "frontend", "lab", "runtime", "zoo")
    return __version__, code_version(), code_state(*(import_module(f"redfuser.{p}") for p in packages))


@dataclass
class State:
    """Comparisons by entry, and losses of the ablation by (rule, entry): "" where nothing is lost.

    `key` names the rules and the code that the findings are of; a file with another key is begun anew.
    """

    path: Path
    key: str
    done: dict[str, Comparison] = field(default_factory=dict)
    ablated: dict[tuple[str, str], str] = field(default_factory=dict)

    @classmethod
    def of(cls, rules: RuleFile, path: Path | None, fresh: bool) -> State:
        """The state of an earlier run with the same rules and the same redfuser, else an empty one.

        Raises
        ------
        CommandError
            when a file at a given path is no state of the laboratory: it is not overwritten.
        """
        key = f"{FORMAT} {digest(rules.digest, *_code())}"
        where = cache_directory() / "lab" / f"{rules.path.stem}-{rules.digest}.json" if path is None else path
        state = cls(where, key)
        if fresh or not where.exists():
            return state
        try:
            data = json.loads(where.read_text(encoding="utf-8"))
            is_ours = str(data["key"]).startswith("redfuser-lab-")
        except (OSError, ValueError, KeyError, TypeError):
            data, is_ours = {}, False
        if not is_ours:
            if path is None:
                return state
            raise CommandError(f"--state {str(path)!r} is no state of `redfuser lab`; choose another file or remove it")
        if data["key"] == key:
            state.done = {c["entry"]: Comparison.of_dict(c) for c in data["done"]}
            state.ablated = {(rule, entry): kind for rule, entry, kind in data["ablated"]}
        return state

    def add(self, found: Comparison) -> None:
        """Note a comparison, on disk too."""
        self.done[found.entry] = found
        self.save()

    def add_ablated(self, rule: str, entry: str, kind: str) -> None:
        """Note what an entry loses without a rule, on disk too."""
        self.ablated[rule, entry] = kind
        self.save()

    def save(self) -> None:
        """Write the file: readers see all of it or the one before.

        Raises
        ------
        CommandError
            when it cannot be written.
        """
        text = json.dumps(dict(self._items()), indent=1)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}-")
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    file.write(text)
                os.replace(name, self.path)
            except BaseException:
                os.unlink(name)
                raise
        except OSError as error:
            raise CommandError(f"the state {str(self.path)!r} cannot be written ({error.strerror}); choose another "
                               "file with --state") from error

    def _items(self) -> Iterator[tuple[str, Any]]:
        yield "key", self.key
        yield "done", [c.to_dict() for c in self.done.values()]
        yield "ablated", [[*names, kind] for names, kind in self.ablated.items()]
