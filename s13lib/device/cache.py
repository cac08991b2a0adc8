"""Compiled code on disk: the second process loads in milliseconds what the first one compiled in seconds.

Numba's own cache looks only at the file that a function stands in: a kernel whose helper changed in another file would
stay stale, and a kernel typed into a notebook moves about. So the key here is what the machine code depends on: the
byte code of the function and of everything that it calls, the constants that it freezes, the compiler's options and
versions, and the processor. The folder is the user's, because an installation may be read-only.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

import llvmlite
import numba
import numpy as np
from numba.core import serialize
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.dispatcher import Dispatcher

#: How many functions this process has compiled, and how many it has loaded from the cache instead.
statistics = {"compiled": 0, "loaded": 0}


def _candidates() -> list[Path]:
    """Where compiled kernels may lie, the preferred place first."""
    if named := os.environ.get("S13_CACHE_DIR"):
        folders = [Path(named)]
    elif sys.platform == "win32":
        folders = [Path(os.environ.get("LOCALAPPDATA", "~/AppData/Local")).expanduser() / "s13lib" / "cache"]
    elif sys.platform == "darwin":
        folders = [Path("~/Library/Caches/s13lib").expanduser()]
    else:
        folders = [Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "s13lib"]
    user = os.getuid() if hasattr(os, "getuid") else os.environ.get("USERNAME", "user")
    folders.append(Path(tempfile.gettempdir()) / f"s13lib-{user}")
    return [folder / "kernels" for folder in folders]


def cache_folder() -> Path:
    """Where compiled kernels are saved: ``S13_CACHE_DIR``, else the user's cache folder, else a temporary one.

    They are also looked for in a place that may only be read: one cache can serve a whole class.
    """
    for folder in _candidates():
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            # In a temporary folder that another user made, code of his might wait to be run.
            if os.access(folder, os.W_OK) and (not hasattr(os, "getuid") or folder.stat().st_uid == os.getuid()):
                return folder
    return _candidates()[-1]  # saves will fail, silently: kernels are then compiled each time


def folders() -> list[Path]:
    """Where compiled kernels are looked for, in this order; the last of them is ``cache_folder()``."""
    return list(dict.fromkeys((_candidates()[0], cache_folder())))


class KernelCache(NullCache):
    """One function's compiled forms, in files named after ``fingerprint(function)`` and the signature."""

    def __init__(self, name: str, key: str) -> None:
        self._name, self._key = name, key

    def _file(self, signature: object, codegen: object) -> str:
        text = repr((self._key, str(signature), codegen.magic_tuple()))
        return f"{self._name}-{hashlib.sha256(text.encode()).hexdigest()[:20]}.nbc"

    def load_overload(self, signature, target_context):
        """Numba asks: is it on disk?"""
        target_context.refresh()
        name = self._file(signature, target_context.codegen())
        for folder in folders():
            with contextlib.suppress(Exception):  # missing, half-written or from another world: the next, or compile
                payload = pickle.loads((folder / name).read_bytes())
                result = CompileResult._rebuild(target_context, *payload)
                statistics["loaded"] += 1
                return result
        return None

    def save_overload(self, signature, result):
        """Numba hands over what it has compiled."""
        statistics["compiled"] += 1
        if result.library.has_dynamic_globals:  # holds addresses of this process
            return
        path = cache_folder() / self._file(signature, result.codegen)
        draft = path.with_suffix(f".{os.getpid()}.tmp")
        with contextlib.suppress(OSError):
            draft.write_bytes(serialize.dumps(result._reduce()))
            draft.replace(path)


def fingerprint(function: Callable, options: dict) -> str:
    """A digest of all that the machine code of ``function`` depends on."""
    digest = hashlib.sha256()
    versions = (sys.version_info[:3], numba.__version__, llvmlite.__version__)
    digest.update(repr((versions, _plain(options))).encode())
    _absorb(function, digest, set())
    return digest.hexdigest()


def _absorb(value: object, digest: hashlib._Hash, seen: set[int]) -> None:
    """Feed ``value`` into ``digest``: functions by their code and whatever they refer to, constants by value."""
    value = getattr(value, "_defn", value)  # an intrinsic stands for its Python definition
    if isinstance(value, Dispatcher):
        digest.update(repr(_plain(value.targetoptions)).encode())
        value = value.py_func
    if not isinstance(value, FunctionType) or value.__module__.partition(".")[0] in ("numba", "llvmlite", "numpy"):
        digest.update(repr(_plain(value)).encode())
        return
    if id(value) in seen:
        return
    seen.add(id(value))
    names = _absorb_code(value.__code__, digest)
    for cell in value.__closure__ or ():
        _absorb(cell.cell_contents, digest, seen)
    for name in names:
        referred = value.__globals__.get(name)
        if isinstance(referred, ModuleType):
            for attribute in names:
                _absorb(getattr(referred, attribute, None), digest, seen)
        else:
            _absorb(referred, digest, seen)


def _absorb_code(code: CodeType, digest: hashlib._Hash) -> list[str]:
    """Feed the byte code in, with that of inner functions; return the names that it refers to."""
    names = list(code.co_names)
    digest.update(code.co_code + repr((code.co_names, code.co_varnames, code.co_freevars)).encode())
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names += _absorb_code(constant, digest)
        else:
            digest.update(repr(_plain(constant)).encode())
    return names


def _plain(value: object) -> object:
    """A form of ``value`` whose ``repr`` is the same in every process: no addresses, no set order."""
    if value is None or isinstance(value, bool | int | float | complex | str | bytes | np.generic | np.dtype):
        return value
    if isinstance(value, np.ndarray):
        return (value.dtype.str, value.shape, value.tobytes())
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(repr(_plain(item)) for item in value)
    if isinstance(value, dict):
        return [(key, _plain(item)) for key, item in sorted(value.items(), key=repr)]
    return getattr(value, "__qualname__", type(value).__qualname__)
