"""The disk cache of compiled libraries: shared by processes, safe against crashes, never silently useless."""

from __future__ import annotations

import atexit
import errno
import hashlib
import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from redfuser.errors import CacheError
from redfuser.logs import runtime as log

DIRECTORY_VARIABLE = "REDFUSER_CACHE_DIR"
REMEDY = f"set the environment variable {DIRECTORY_VARIABLE} to a writable directory with free space"
_UNUSABLE = frozenset(
    {
        errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENOTDIR, errno.EEXIST,
        errno.ENOENT, errno.ENAMETOOLONG, errno.ELOOP,
    }
)


class CacheWarning(UserWarning):
    """The cache directory cannot be used; kernels are compiled again in every process."""


def cache_directory() -> Path:
    """Where compiled kernels are kept: `$REDFUSER_CACHE_DIR`, else the user's cache directory."""
    chosen = os.environ.get(DIRECTORY_VARIABLE, "").strip()
    if chosen:
        return Path(chosen).expanduser()
    from platformdirs import user_cache_path

    return user_cache_path("redfuser", appauthor=False)


def digest(*parts: str) -> str:
    """A key of texts: equal keys mean equal texts, in order."""
    h = hashlib.sha256()
    for part in parts:
        raw = part.encode()
        h.update(len(raw).to_bytes(8, "little"))
        h.update(raw)
    return h.hexdigest()[:32]


@lru_cache(maxsize=1)
def _temporary(pid: int) -> Path:
    """The private directory of this process, used when the cache cannot be; removed when the process ends."""
    directory = Path(tempfile.mkdtemp(prefix=f"redfuser-{pid}-"))
    atexit.register(_remove, directory, pid)
    return directory


def _remove(directory: Path, pid: int) -> None:
    """Remove a private directory, unless this is a forked child of its owner."""
    if os.getpid() == pid:
        shutil.rmtree(directory, ignore_errors=True)


def fetch(key: str, source: str, build: Callable[[Path, Path], None], suffix: str = ".c") -> Path:
    """The library with this key; `build(source_path, library_path)` makes it when it is missing or damaged.

    Only one process builds a key at a time; the others wait and find the result. A library counts as intact when
    its SHA-256 is the one written beside it. The source is kept next to the library, under a name with `suffix`.

    Raises
    ------
    CacheError
        when neither the cache directory nor a temporary one can be written.

    Warns
    -----
    CacheWarning
        when the cache directory cannot be written and a temporary one is used.
    """
    directory = cache_directory()
    try:
        return _fetch_in(directory, key, source, build, suffix)
    except (OSError, NotImplementedError) as error:  # the latter: a file system that cannot lock
        if isinstance(error, OSError) and error.errno not in _UNUSABLE:
            raise CacheError(f"the kernel cache {directory} failed ({error}); {REMEDY}") from error
        warnings.warn(
            f"the kernel cache {directory} cannot be used ({error}); compiling in a temporary directory; {REMEDY}",
            CacheWarning,
            stacklevel=2,
        )
    try:
        return _fetch_in(_temporary(os.getpid()), key, source, build, suffix)
    except OSError as error:
        raise CacheError(f"no directory for compiled kernels can be written ({error}); {REMEDY}") from error


def _fetch_in(
    directory: Path, key: str, source: str, build: Callable[[Path, Path], None], suffix: str
) -> Path:
    library = directory / f"{key}.so"
    if _intact(library):
        log.info("found %s", library)
        return library
    from filelock import FileLock

    directory.mkdir(parents=True, exist_ok=True)
    with FileLock(directory / f"{key}.lock"):
        if not _intact(library):
            log.debug("building %s", library)
            start = time.perf_counter()
            _build_in(directory, key, source, build, suffix)
            log.info("built %s in %.0f ms", library, (time.perf_counter() - start) * 1e3)
    return library


def _sum_file(library: Path) -> Path:
    return library.with_suffix(".sha256")


def _intact(library: Path) -> bool:
    """Whether the library is there, whole."""
    try:
        expected = _sum_file(library).read_text(encoding="ascii").strip()
        return hashlib.sha256(library.read_bytes()).hexdigest() == expected
    except (OSError, UnicodeDecodeError):
        return False


def _build_in(
    directory: Path, key: str, source: str, build: Callable[[Path, Path], None], suffix: str
) -> None:
    """Build in a private subdirectory, then move the results in place: readers see all of a file or none of it."""
    with tempfile.TemporaryDirectory(dir=directory, prefix=f"{key}-") as work:
        text, binary = Path(work) / f"{key}{suffix}", Path(work) / f"{key}.so"
        text.write_text(source, encoding="utf-8")
        build(text, binary)
        checksum = Path(work) / f"{key}.sha256"
        checksum.write_text(hashlib.sha256(binary.read_bytes()).hexdigest(), encoding="ascii")
        for file in (text, binary, checksum):
            os.replace(file, directory / file.name)
