"""PTX text to nodes."""

from __future__ import annotations

from typing import NoReturn

from redfuser.runtime.cuda.errors import UnsupportedPtx
from redfuser.runtime.cuda.ptx_nodes import (
    Address,
    Entry,
    Float,
    Guard,
    Instruction,
    Integer,
    Label,
    Location,
    Module,
    Negated,
    Operand,
    Pair,
    Register,
    Sink,
    Special,
    Statement,
    Symbol,
    Targets,
    Variable,
    Vector,
)
from redfuser.runtime.cuda.ptx_tokens import SIZES, Token, tokens


def parse_ptx(text: str) -> Module:
    """The module that a PTX text describes.

    Raises
    ------
    UnsupportedPtx
        for text that cannot be read, and for calls of functions that were not inlined.
    """
    return _Parser(text).module()


class _Scope:
    """Names of registers and labels between braces, and what they are called in the flat body."""

    def __init__(self, parent: _Scope | None, number: int) -> None:
        self.parent, self.number = parent, number
        self.names: dict[str, str] = {}

    def add(self, name: str) -> str:
        self.names[name] = name if self.parent is None else f"{name}__{self.number}"
        return self.names[name]

    def find(self, name: str) -> str | None:
        return self.names.get(name) or (self.parent.find(name) if self.parent else None)


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = list(tokens(text))
        self._at = 0
        self._location: Location | None = None
        self._registers: dict[str, str] = {}
        self._variables: list[Variable] = []
        self._body: list[Statement] = []
        self._scopes = 0

    # ---- tokens ----

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    def _take(self, text: str | None = None) -> Token:
        token = self._next
        if text is not None and token.text != text:
            self._fail(f"expected {text!r}, got {token.text!r}")
        self._at += 1
        return token

    def _accept(self, text: str) -> bool:
        if self._next.text != text or self._next.kind == "string":
            return False
        self._at += 1
        return True

    def _fail(self, message: str) -> NoReturn:
        raise UnsupportedPtx(f"PTX line {self._next.row}: {message}")

    def _integer(self) -> int:
        negative = self._accept("-")
        token = self._take()
        if token.kind != "integer":
            self._fail(f"expected an integer, got {token.text!r}")
        value = int(token.text.rstrip("U"), 0)
        return -value if negative else value

    def _skip_to(self, end: str) -> None:
        while not self._accept(end):
            if self._next.kind == "end":
                self._fail(f"{end!r} is missing")
            self._at += 1

    # ---- the module ----

    def module(self) -> Module:
        version = target = ""
        variables: list[Variable] = []
        entries: list[Entry] = []
        files: dict[int, str] = {}
        while self._next.kind != "end":
            word = self._take().text
            if word == ".version":
                version = self._take().text
            elif word == ".target":
                target = self._target()
            elif word == ".address_size":
                self._integer()
            elif word == ".file":
                index = self._integer()
                files[index] = self._take().text.strip('"')
                while self._accept(","):
                    self._integer()
            elif word == ".section":
                self._skip_to("}")
            elif word == ".entry":
                entries.append(self._entry())
            elif word == ".func":
                self._function()
            elif word in (".global", ".const", ".shared"):
                variables.append(self._variable(word[1:]))
                self._take(";")
            elif word == ".extern":
                space = self._take().text
                if space == ".func":
                    self._skip_to(";")
                    continue
                variables.append(self._variable(space[1:], extern=True))
                self._take(";")
            elif word not in (".visible", ".weak"):
                self._at -= 1
                self._fail(f"unknown directive {word!r}")
        return Module(version, target, tuple(variables), tuple(entries), files)

    def _target(self) -> str:
        target = self._take().text
        while self._accept(","):
            self._take()
        return target

    def _function(self) -> None:
        self._fail(
            "a function that is not inlined; mark it __forceinline__, and call nothing from the CUDA library "
            "that has a slow path in a function of its own"
        )

    def _variable(self, space: str, extern: bool = False) -> Variable:
        align, count = 0, 1
        values: tuple[int, ...] = ()
        kind = ""
        pointee = False
        while self._next.kind == "directive":
            word = self._take().text
            pointee = pointee or word == ".ptr"
            if word == ".align":
                stated = self._integer()
                align = align if pointee else stated  # behind .ptr it is that of what the parameter points to
            elif word[1:] in SIZES:
                kind = word[1:]
            elif word not in (".attribute", ".ptr", ".global", ".shared", ".const", ".local", ".managed"):
                self._fail(f"unknown word {word!r} in a declaration")
        name = self._take().text
        size: int | None = count
        if self._accept("["):
            size = None if self._next.text == "]" else self._integer()
            self._take("]")
        if self._accept("="):
            values = self._values()
            if size is None:
                size = len(values)
        return Variable(space, kind, name, align or SIZES[kind], size, values, extern)

    def _values(self) -> tuple[int, ...]:
        if not self._accept("{"):
            return (self._value(),)
        values = []
        while not self._accept("}"):
            values.append(self._value())
            self._accept(",")
        return tuple(values)

    def _value(self) -> int:
        if self._next.kind == "float":
            return int(self._take().text[2:], 16)
        if self._next.kind == "word":
            self._fail(f"a variable that holds the address of {self._next.text!r} is not supported")
        return self._integer()

    # ---- an entry ----

    def _entry(self) -> Entry:
        name = self._take().text
        params = []
        if self._accept("("):
            while not self._accept(")"):
                self._take(".param")
                params.append(self._variable("param"))
                self._accept(",")
        limits = []
        while self._next.text != "{":
            word = self._take().text
            numbers = []
            while self._next.kind == "integer":
                numbers.append(self._integer())
                self._accept(",")
            limits.append((word[1:], tuple(numbers)))
        self._location, self._registers, self._variables, self._body, self._scopes = None, {}, [], [], 0
        self._take("{")
        self._block(self._open(None))
        return Entry(name, tuple(params), self._registers, tuple(self._variables), tuple(self._body), tuple(limits))

    def _open(self, parent: _Scope | None) -> _Scope:
        """A scope with all labels between here and its closing brace: jumps may go forward."""
        scope = _Scope(parent, self._scopes)
        self._scopes += 1
        depth = 0
        for i in range(self._at, len(self._tokens) - 1):
            text = self._tokens[i].text
            depth += (text == "{") - (text == "}")
            if depth < 0:
                break
            if depth == 0 and self._tokens[i].kind == "word" and self._tokens[i + 1].text == ":":
                scope.add(text)
        return scope

    def _block(self, scope: _Scope) -> None:
        while not self._accept("}"):
            token = self._next
            if token.kind == "end":
                self._fail("'}' is missing")
            if self._accept("{"):
                self._block(self._open(scope))
            elif self._accept(";"):
                continue
            elif token.kind == "directive":
                self._directive(scope)
            elif token.kind == "word" and self._tokens[self._at + 1].text == ":":
                self._label(scope)
            else:
                self._body.append(self._instruction(scope))

    def _label(self, scope: _Scope) -> None:
        name = scope.find(self._take().text) or ""
        self._take(":")
        if self._accept(".branchtargets"):
            labels = []
            while not self._accept(";"):
                word = self._take().text
                labels.append(scope.find(word) or word)
                self._accept(",")
            self._body.append(Targets(name, tuple(labels)))
        else:
            self._body.append(Label(name))

    def _directive(self, scope: _Scope) -> None:
        word = self._take().text
        if word == ".loc":
            self._location = self._loc()
        elif word == ".reg":
            self._declare(scope)
        elif word in (".local", ".shared"):
            self._variables.append(self._variable(word[1:]))
            self._take(";")
        elif word == ".pragma":
            self._skip_to(";")
        else:
            self._fail(f"unknown directive {word!r}")

    def _loc(self) -> Location:
        file, line = self._integer(), self._integer()
        self._integer()  # column
        if not self._accept(","):
            return Location(file, line)
        self._take("function_name")
        self._take()
        if self._accept("+"):
            self._integer()
        self._take(",")
        self._take("inlined_at")
        caller = Location(self._integer(), self._integer())
        self._integer()
        known = self._location
        while known is not None and (known.file, known.line) != (caller.file, caller.line):
            known = known.caller
        return Location(file, line, known or caller)

    def _declare(self, scope: _Scope) -> None:
        kind = self._take().text[1:]
        if kind not in SIZES:
            self._fail(f"unknown type .{kind} of a register")
        while not self._accept(";"):
            name = self._take().text
            if self._accept("<"):
                for i in range(self._integer()):
                    self._registers[scope.add(f"{name}{i}")] = kind
                self._take(">")
            else:
                self._registers[scope.add(name)] = kind
            self._accept(",")

    # ---- instructions ----

    def _instruction(self, scope: _Scope) -> Instruction:
        guard = None
        if self._accept("@"):
            negated = self._accept("!")
            guard = Guard(self._register(scope), negated)
        token = self._take()
        if token.kind != "word":
            self._at -= 1
            self._fail(f"expected an instruction, got {token.text!r}")
        name, *modifiers = token.text.split(".")
        if name == "call":
            self._function()
        operands = []
        while not self._accept(";"):
            operands.append(self._operand(scope))
            if self._next.text not in (",", ";"):
                self._fail(f"expected ',' or ';' after an operand of {token.text}, got {self._next.text!r}")
            self._accept(",")
        return Instruction(name, tuple(modifiers), tuple(operands), guard, self._location, token.row)

    def _register(self, scope: _Scope) -> Register:
        name = self._take().text
        found = scope.find(name)
        if found is None:
            self._fail(f"register {name!r} is not declared")
        return Register(found)

    def _operand(self, scope: _Scope) -> Operand:
        operand = self._simple(scope)
        if self._accept("|"):
            return Pair(operand, self._simple(scope))
        return operand

    def _simple(self, scope: _Scope) -> Operand:
        token = self._next
        if self._accept("["):
            return self._address(scope)
        if self._accept("{"):
            items = []
            while not self._accept("}"):
                items.append(self._simple(scope))
                self._accept(",")
            return Vector(tuple(items))
        if self._accept("!"):
            return Negated(self._simple(scope))
        if token.kind == "float":
            self._take()
            return Float(int(token.text[2:], 16), 32 if token.text[1] in "fF" else 64)
        if token.kind == "integer" or token.text == "-":
            return Integer(self._integer())
        self._take()
        if token.text == "_":
            return Sink()
        if token.kind == "special" or token.text == "WARP_SZ":
            return Special(token.text)
        if token.kind != "word":
            self._at -= 1
            self._fail(f"expected an operand, got {token.text!r}")
        found = scope.find(token.text)
        if found in self._registers:
            return Register(found)
        if found is None and token.text.startswith("%"):
            return Special(token.text)
        return Symbol(found or token.text, self._offset())

    def _offset(self) -> int:
        if self._accept("+"):
            return self._integer()
        return 0

    def _address(self, scope: _Scope) -> Address:
        base = self._simple(scope)
        if not isinstance(base, (Register, Symbol, Integer)):
            self._fail("an address must be a register, a variable or a number")
        offset = self._offset()
        if self._accept("-"):
            offset = -self._integer()
        if self._next.text == ",":
            self._fail("addresses of tensors are not supported")
        self._take("]")
        if isinstance(base, Symbol):
            return Address(Symbol(base.name), base.offset + offset)
        return Address(base, offset)
