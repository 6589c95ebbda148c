"""The disk cache of derivations: used across processes, never trusted, never in the way."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import redfuser as rf
from redfuser import pipeline
from redfuser.derivation.derive import derive_with, settings_for
from redfuser.ir import Const
from redfuser.runtime import derivations
from redfuser.runtime.derivations import derived, key_of, spelled
from redfuser.zoo import ENTRIES


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("REDFUSER_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("REDFUSER_DERIVATIONS", raising=False)
    return tmp_path


class Counter:
    """Derives the entry `entropy` and counts how often."""

    def __init__(self, name: str = "entropy") -> None:
        self.cascade = ENTRIES[name].cascade()
        self.settings = settings_for()
        self.count = 0

    def __call__(self):
        return derived(self.cascade, self.settings, self._derive)

    def _derive(self):
        self.count += 1
        return derive_with(self.cascade, self.settings)


def _entries(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.derivation"))


def test_the_second_time_nothing_is_derived(cache):
    ask = Counter()
    first, second = ask(), ask()
    assert ask.count == 1
    assert len(_entries(cache)) == 1
    assert (second.fused, second.verdict, second.stages) == (first.fused, first.verdict, first.stages)
    assert second.certificate.valid
    assert second.settings == ask.settings
    assert second.rules == first.rules


def test_laws_limits_preferences_and_names_are_part_of_the_key():
    cascade = ENTRIES["entropy"].cascade()
    settings = settings_for()
    keys = {key_of(cascade, s) for s in (
        settings, settings_for(rf.rules.default - rf.rules.GROUPS["logarithm"]), replace(settings, pivot=False),
        replace(settings, limits=replace(settings.limits, nodes=10)), settings_for(allow=("requantize",)))}
    assert len(keys) == 5
    assert key_of(replace(cascade, name="another"), settings) not in keys
    assert key_of(cascade, settings_for()) in keys
    assert spelled(Const(1)) != spelled(Const(True)) != spelled(Const(1.0))


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty", "foreign", "directory"])
def test_a_damaged_entry_is_derived_again_and_replaced(cache, damage):
    ask = Counter()
    good = ask()
    (file,) = _entries(cache)
    raw = file.read_bytes()
    if damage == "directory":
        file.unlink()
        file.mkdir()
    else:
        file.write_bytes({"truncate": raw[: len(raw) // 2], "flip": raw[:-1] + bytes([raw[-1] ^ 1]), "empty": b"",
                          "foreign": pickle.dumps("something else")}[damage])
    assert ask().fused == good.fused
    assert ask.count == 2
    ask()
    assert ask.count == (3 if damage == "directory" else 2)  # a directory in the way stays


def test_a_wrong_form_in_the_cache_fails_its_certificate(cache, monkeypatch):
    ask = Counter()
    good = ask()
    name, correction = good.fused.corrections[-1]
    doubled = (*good.fused.corrections[:-1], (name, correction * 2))
    wrong = replace(good, fused=replace(good.fused, corrections=doubled))
    derivations._keep(key_of(ask.cascade, ask.settings), wrong)
    assert ask().fused == good.fused
    assert ask.count == 2


def test_code_in_an_entry_is_not_run(cache):
    ask = Counter()
    ask()
    (file,) = _entries(cache)
    key = key_of(ask.cascade, ask.settings)

    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(cache / "owned"),)

    body = pickle.dumps(Evil())
    file.write_bytes(derivations.hashlib.sha256(key.encode() + body).digest() + body)
    ask()
    assert ask.count == 2
    assert not (cache / "owned").exists()


def test_what_ran_out_of_time_is_not_kept(cache):
    """Another moment, or another machine, would have gone on."""
    cascade = ENTRIES["softmax"].cascade()
    made = derive_with(cascade, settings_for())
    made.timeline[-1].outcome = "time"
    assert derived(cascade, settings_for(), lambda: made) is made
    assert not _entries(cache)


def test_a_cache_that_cannot_be_written_does_no_harm(tmp_path, monkeypatch):
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    monkeypatch.setenv("REDFUSER_CACHE_DIR", str(blocked))
    ask = Counter()
    assert ask().certificate.valid
    assert ask().certificate.valid
    assert ask.count == 2


def test_a_full_disk_leaves_nothing_behind(cache, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(derivations.os, "replace", full)
    ask = Counter()
    assert ask().certificate.valid
    assert list(cache.iterdir()) == []


def test_it_can_be_switched_off(cache, monkeypatch):
    monkeypatch.setenv("REDFUSER_DERIVATIONS", "off")
    ask = Counter()
    ask(), ask()
    assert ask.count == 2
    assert _entries(cache) == []


PROGRAM = """
import sys, numpy as np, redfuser as rf
def f(x):
    p = np.exp(x - x.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True)
print(rf.fuse(f).explain(rf.spec((4, "n"), "float32")).verdict, "egglog" in sys.modules)
"""


def test_a_new_process_needs_no_engine(cache):
    def run():
        done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
        return done.stdout.split()

    assert run() == ["FUSIBLE", "True"]
    assert run() == ["FUSIBLE", "False"]


def test_results_are_the_same_from_the_cache(cache, monkeypatch):
    def f(x):
        return x.var(-1)

    def computed():
        pipeline._derive_cached.cache_clear()
        return rf.fuse(f, target="interpret")(x)

    def refuse(*_):
        raise AssertionError("derived again")

    x = np.random.default_rng(0).normal(size=(3, 17)).astype("float32")
    first = computed()
    np.testing.assert_allclose(first, f(x), rtol=1e-5)
    monkeypatch.setattr(sys.modules["redfuser.derivation.derive"], "derive_with", refuse)
    np.testing.assert_array_equal(computed(), first)


def test_what_the_derivation_decided_is_kept(cache):
    ask = Counter()
    late = ((ask.cascade.reductions[-1].name, "wrong where nothing is selected"),)
    made = derive_with(ask.cascade, replace(ask.settings, late=late))
    assert made.passes > 1
    derivations._keep(key_of(ask.cascade, ask.settings), made)
    found = ask()
    assert ask.count == 0
    assert found.settings == made.settings
    assert found.rules == made.rules
