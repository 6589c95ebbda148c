"""What the parts of the printer share: names, types, addresses and the text written so far."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from redfuser.codegen.c.address import Addresses
from redfuser.codegen.c.names import Names, is_own
from redfuser.codegen.c.target import CTarget
from redfuser.codegen.c.types import Types
from redfuser.codegen.nodes import Kernel


class Writer:
    """Lines of C with indentation. Constants that nothing reads are dropped at the end (they would warn)."""

    def __init__(self, depth: int = 0) -> None:
        self._lines: list[tuple[str, str | None]] = []
        self._depth = depth

    def line(self, text: str) -> None:
        """One line."""
        self._lines.append(("  " * self._depth + text if text else "", None))

    def let(self, kind: str, name: str, value: str) -> None:
        """A constant of C type `kind` (a pointer type ends in `*`); it has no effect beyond its name."""
        head = f"{kind}const {name}" if kind.endswith("*") else f"const {kind} {name}"
        self._lines.append((f"{'  ' * self._depth}{head} = {value};", name))

    def drop_unread(self, name: str, mark: int) -> None:
        """Drop the constant `name` that line number `mark` declares, if no line after it reads it."""
        word = re.compile(rf"\b{re.escape(name)}\b")
        if not any(word.search(text) for text, _ in self._lines[mark + 1 :]):
            del self._lines[mark]

    def __len__(self) -> int:
        return len(self._lines)

    def splice(self, text: str) -> None:
        """Lines that are indented already."""
        self._lines += [(line, None) for line in text.split("\n")] if text else []

    @contextmanager
    def block(self, head: str = "") -> Iterator[None]:
        """`head {` ... `}`."""
        self.line(f"{head} {{" if head else "{")
        self._depth += 1
        yield
        self._depth -= 1
        self.line("}")

    def text(self) -> str:
        """All lines, without the constants that nothing reads."""
        lines = self._lines
        while True:
            counts: dict[str, int] = {}
            for text, _ in lines:
                for word in re.findall(r"[A-Za-z_]\w*", text):
                    counts[word] = counts.get(word, 0) + 1
            kept = [x for x in lines if x[1] is None or counts[x[1]] > 1]
            if len(kept) == len(lines):
                return "\n".join(text for text, _ in kept)
            lines = kept


class Printing:
    """One kernel being printed, in any language of the C family."""

    def __init__(self, kernel: Kernel, reserved: frozenset[str], own: Callable[[str], bool] = is_own) -> None:
        self.kernel = kernel
        self.names = Names(reserved, own)
        self.addresses = Addresses(self.names)
        self.static = dict(kernel.static)
        self.types = Types(kernel.compute, {})
        self.out = Writer()

    def enter(self, variables: Mapping[str, str], depth: int) -> None:
        """Start the text of a phase whose variables have these types."""
        self.types = Types(self.kernel.compute, variables)
        self.out = Writer(depth)


class Context(Printing):
    """One kernel being printed as C for one target."""

    def __init__(self, kernel: Kernel, target: CTarget, reserved: frozenset[str]) -> None:
        super().__init__(kernel, reserved)
        self.target = target
        self.lanes = target.lanes(kernel.compute)
        self.functions: list[str] = []
        self.streams = False  # the current phase uses streaming stores

    @property
    def real(self) -> str:
        """C type of the elements of a vector."""
        return "float" if self.kernel.compute == "float32" else "double"

    def enter(self, variables: Mapping[str, str], depth: int) -> None:
        """Start the text of a phase whose variables have these types."""
        super().enter(variables, depth)
        self.streams = False
