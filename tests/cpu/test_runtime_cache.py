"""Finding a compiler, and the disk cache: shared, checked, and loud when it cannot be used."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from programs import elementwise, fresh_cache, row_cell

import redfuser as rf
from redfuser.errors import CacheError, CompileError, NoCompiler, SettingError
from redfuser.runtime import (
    CacheWarning,
    cache_directory,
    compile_kernel,
    compiler,
    detect_profile,
    find_compiler,
    library,
)
from redfuser.runtime import cache as cache_module
from redfuser.runtime.build import build_library, load_library
from redfuser.runtime.compiler import Compiler
from redfuser.runtime.machine import cache_sizes, profile_overrides, thread_count, vector_unit

X = row_cell("x", "float32")
DOUBLE = elementwise(X * 2.0, [X.buf])


def works(kernel) -> bool:
    x, y = np.arange(6, dtype="float32").reshape(2, 3), np.empty((2, 3), "float32")
    kernel.run([x], [y], {"r": 2, "n": 3})
    return bool(np.array_equal(y, 2 * x))


# ---- the compiler


def test_the_compiler_of_this_machine():
    found = find_compiler()
    assert found.version
    assert str(found).startswith(found.command[0])
    assert "__GNUC__" in found.macros()


def test_only_gcc_is_given_the_quick_flags(monkeypatch):
    gnu, clang = frozenset({"__GNUC__"}), frozenset({"__GNUC__", "__clang__"})
    for macros, quick in ((gnu, True), (clang, False), (frozenset(), False)):
        monkeypatch.setattr(compiler, "_macros", lambda found, flags, known=macros: known)
        assert bool(Compiler(("some-cc",), str(len(macros))).quick_flags()) == quick


def test_matrix_products_are_optimised_in_full(monkeypatch):
    asked = []
    monkeypatch.setattr(library, "build_library", lambda source, compiler, flags, native: asked.append(flags))
    monkeypatch.setattr(library, "CompiledKernel", lambda *args: SimpleNamespace(source="", path=""))
    monkeypatch.setattr(Compiler, "quick_flags", lambda self: ("-quick",))
    for fn, quick in ((lambda x: np.exp(x - x.max()).sum(), True), (lambda x: np.exp(x @ x.T).sum(-1), False)):
        compile_kernel(rf.fuse(fn).lower(rf.spec((300, 300), "float32")).tiles[0], flags=("-last",))
        assert asked.pop() == (("-quick",) if quick else ()) + ("-last",)


def test_no_compiler_is_an_error_with_a_remedy(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(compiler.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(NoCompiler, match=r"tried cc, gcc, clang.*apt install gcc.*redfuser\[cc\].*CC"):
        find_compiler()


def test_cc_is_taken_at_its_word(monkeypatch, tmp_path):
    """A wrong $CC is an error, not a reason to look elsewhere."""
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(NoCompiler, match=r"no-such-compiler"):
        find_compiler()
    real = find_compiler.__globals__["shutil"].which("cc") or shutil.which("gcc")
    wrapper = tmp_path / "my cc"
    wrapper.write_text(f'#!/bin/sh\nexec {real} "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("CC", f"'{wrapper}' -DEXTRA=1")
    assert find_compiler().command == (str(wrapper), "-DEXTRA=1")


def test_a_rejected_source_is_kept_and_named(empty_cache):
    with pytest.raises(CompileError, match=r"rejected (\S+\.c) \(exit status 1\)(.|\n)*expected") as caught:
        build_library("int f(void) { return 1 + ; }\n", find_compiler())
    text = str(caught.value)
    kept = Path(text.split("rejected ")[1].split(" (exit")[0])
    assert "return 1 + ;" in kept.read_text()
    assert "command:" in text
    shutil.rmtree(kept.parent)


# ---- the machine


def test_threads_come_from_the_environment_or_the_affinity(monkeypatch):
    monkeypatch.setenv("REDFUSER_NUM_THREADS", "7")
    assert thread_count() == 7
    monkeypatch.delenv("REDFUSER_NUM_THREADS")
    assert thread_count() == len(os.sched_getaffinity(0))
    for bad in ("0", "-1", "many"):
        monkeypatch.setenv("REDFUSER_NUM_THREADS", bad)
        with pytest.raises(SettingError, match=r"REDFUSER_NUM_THREADS .* positive integer"):
            thread_count()


def test_the_profile_holds_what_was_detected(monkeypatch):
    monkeypatch.setenv("REDFUSER_NUM_THREADS", "3")
    profile, found = detect_profile(), profile_overrides(find_compiler())
    assert profile.threads == 3
    assert {name: getattr(profile, name) for name in found} == found
    assert profile.vector_bytes in (16, 32, 64)
    assert cache_sizes().get("l1", 1) <= cache_sizes().get("l2", 1 << 40)


def test_the_vector_width_is_known_without_a_compiler():
    assert vector_unit(None) == vector_unit(find_compiler())


# ---- the cache


def count_builds(monkeypatch) -> list[Path]:
    """The libraries that the compiler was asked for from now on."""
    built: list[Path] = []
    original = compiler.Compiler.compile

    def counting(self, source, target, flags):
        built.append(target)
        original(self, source, target, flags)

    monkeypatch.setattr(compiler.Compiler, "compile", counting)
    return built


def test_a_kernel_is_compiled_once(empty_cache, monkeypatch):
    compile_kernel(DOUBLE)  # also the thread pool
    built = count_builds(monkeypatch)
    kernel = compile_kernel(DOUBLE)
    assert built == []
    assert kernel.path.parent == empty_cache == cache_directory()
    assert works(kernel)
    assert kernel.path.with_suffix(".c").read_text() == kernel.source


def test_source_flags_and_compiler_are_part_of_the_key(empty_cache, monkeypatch):
    first = compile_kernel(DOUBLE)
    assert compile_kernel(DOUBLE, flags=("-O1",)).path != first.path
    assert compile_kernel(elementwise(X * 3.0, [X.buf])).path != first.path
    other = compiler.Compiler(first and find_compiler().command, "another version")
    assert compile_kernel(DOUBLE, compiler=other).path != first.path


@pytest.mark.parametrize("damage", ["truncated", "flipped bit", "no checksum", "garbage checksum"])
def test_a_damaged_entry_is_compiled_again(empty_cache, monkeypatch, damage):
    path = compile_kernel(DOUBLE).path
    whole = path.read_bytes()
    copy = path.with_name(
        "damaged"
    )  # the loaded file itself stays as it is: overwriting it would be another error
    if damage == "truncated":
        copy.write_bytes(whole[: len(whole) // 2])
    elif damage == "flipped bit":
        copy.write_bytes(whole[:500] + bytes([whole[500] ^ 1]) + whole[501:])
    else:
        copy.write_bytes(whole)
        path.with_suffix(".sha256").unlink()
        if damage == "garbage checksum":
            path.with_suffix(".sha256").write_bytes(b"\xff\xfe")
    os.replace(copy, path)
    built = count_builds(monkeypatch)
    assert works(compile_kernel(DOUBLE))
    assert len(built) == 1
    assert path.read_bytes()[:4] == whole[:4]


def test_a_failed_build_leaves_nothing_behind(empty_cache):
    with pytest.raises(CompileError):
        build_library("not C at all\n", find_compiler())
    assert [p.suffix for p in empty_cache.iterdir()] == [".lock"]


COMPILE_AND_COUNT = """
from programs import *
from redfuser.runtime import compiler
original, count = compiler.Compiler.compile, 0
def counting(self, source, target, flags):
    global count
    count += "struct args" in source.read_text()
    original(self, source, target, flags)
compiler.Compiler.compile = counting
x = row_cell("x", "float32")
kernel = compile_kernel(elementwise(op("exp", x) * 5.0, [x.buf]))
a, y = np.zeros((2, 3), "float32"), np.empty((2, 3), "float32")
kernel.run([a], [y], {"r": 2, "n": 3})
assert (y == 5).all()
print(count)
"""


def test_processes_at_the_same_time_compile_once(tmp_path):
    started = [
        subprocess.Popen(
            [sys.executable, "-c", COMPILE_AND_COUNT],
            cwd=Path(__file__).parent,
            env=fresh_cache(tmp_path),
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    outputs = [p.communicate(timeout=120)[0] for p in started]
    assert all(p.returncode == 0 for p in started)
    assert sum(map(int, outputs)) == 1


def test_threads_at_the_same_time_compile_once(empty_cache, monkeypatch):
    compile_kernel(DOUBLE)
    built = count_builds(monkeypatch)
    kernels: list = []
    program = elementwise(X * 9.0, [X.buf])
    threads = [threading.Thread(target=lambda: kernels.append(compile_kernel(program))) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(kernels) == 4
    assert len(built) == 1


@pytest.fixture
def unwritable(monkeypatch, tmp_path):
    """A cache directory on which every write fails (permission bits prove nothing: root ignores them)."""
    monkeypatch.setenv("REDFUSER_CACHE_DIR", str(tmp_path / "cache"))
    cache_module._temporary.cache_clear()
    original = cache_module._build_in
    state = {"errno": errno.EROFS}

    def failing(directory, *rest):
        if directory == tmp_path / "cache" or state.get("everywhere"):
            raise OSError(state["errno"], os.strerror(state["errno"]))
        original(directory, *rest)

    monkeypatch.setattr(cache_module, "_build_in", failing)
    yield state
    cache_module._temporary.cache_clear()


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.ENOSPC, errno.EDQUOT, errno.ENOENT])
def test_an_unusable_cache_warns_and_works(unwritable, code):
    unwritable["errno"] = code
    with pytest.warns(CacheWarning, match=r"cannot be used.*temporary directory.*REDFUSER_CACHE_DIR"):
        kernel = compile_kernel(elementwise(X * float(code), [X.buf]))
    x, y = np.ones((1, 2), "float32"), np.empty((1, 2), "float32")
    kernel.run([x], [y], {"r": 1, "n": 2})
    assert (y == code).all()
    assert "redfuser-" in str(kernel.path)


def test_no_usable_directory_at_all(unwritable):
    unwritable["everywhere"] = True
    with pytest.warns(CacheWarning), pytest.raises(CacheError, match=r"no directory.*REDFUSER_CACHE_DIR"):
        compile_kernel(elementwise(X * 11.0, [X.buf]))


def test_a_file_where_the_cache_should_be(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("REDFUSER_CACHE_DIR", str(tmp_path / "file"))
    with pytest.warns(CacheWarning):
        assert works(compile_kernel(DOUBLE))


def test_a_file_system_without_locks(empty_cache, monkeypatch):
    """filelock raises NotImplementedError there."""
    original = cache_module._fetch_in

    def without_locks(directory, *rest):
        if directory == empty_cache:
            raise NotImplementedError("no flock")
        return original(directory, *rest)

    monkeypatch.setattr(cache_module, "_fetch_in", without_locks)
    with pytest.warns(CacheWarning, match=r"no flock.*REDFUSER_CACHE_DIR"):
        assert works(compile_kernel(DOUBLE))


def test_a_library_the_system_refuses_is_named(tmp_path):
    (tmp_path / "x.so").write_bytes(b"\x7fELF but no library")
    with pytest.raises(CacheError, match=r"x\.so cannot be loaded.*REDFUSER_CACHE_DIR"):
        load_library(tmp_path / "x.so")


COMPILE_ASIDE = """
import warnings
from programs import *
warnings.simplefilter("ignore")
x = row_cell("x", "float32")
print(compile_kernel(elementwise(x * 3.0, [x.buf])).path)
"""


def test_the_temporary_directory_goes_with_the_process(tmp_path):
    (tmp_path / "file").write_text("")
    environment = {**os.environ, "REDFUSER_CACHE_DIR": str(tmp_path / "file"), "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", COMPILE_ASIDE],
        cwd=Path(__file__).parent,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert str(tmp_path / "redfuser-") in done.stdout
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_other_failures_are_errors(unwritable):
    unwritable["errno"] = errno.EIO
    with pytest.raises(CacheError, match=r"failed.*REDFUSER_CACHE_DIR"):
        compile_kernel(DOUBLE)


def test_a_usable_cache_does_not_warn(empty_cache):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert works(compile_kernel(DOUBLE))


def test_the_default_directory_is_the_users(monkeypatch):
    monkeypatch.delenv("REDFUSER_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere/else")
    assert cache_directory().name == "redfuser"
    monkeypatch.setenv("REDFUSER_CACHE_DIR", "~/kernels")
    assert cache_directory() == Path("~/kernels").expanduser()
