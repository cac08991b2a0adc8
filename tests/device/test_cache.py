"""The cache's key: all that the machine code depends on, and nothing else."""

from __future__ import annotations

import os
import types

import numpy as np
import pytest
from numba import njit

from s13lib.device import cache, native, ring
from s13lib.device.cache import KernelCache, fingerprint

SOURCE = """
LIMIT = {limit}
TABLE = np.array([{first}, 2.0])
{comment}
@njit
def inner(x):
    return x {operator} 1

def outer(x):
    return inner(x) + constants.K + LIMIT + TABLE[0]
"""


def outer_with(limit=3, first=1.0, comment="", operator="+", k=1):
    scope = {"njit": njit, "np": np, "constants": types.ModuleType("constants"), "__name__": "made_up"}
    scope["constants"].K = k
    exec(SOURCE.format(limit=limit, first=first, comment=comment, operator=operator), scope)
    return scope["outer"]


def test_the_same_function_has_the_same_key():
    assert fingerprint(outer_with(), {}) == fingerprint(outer_with(), {})
    assert fingerprint(outer_with(comment="# moved down\n\n\n"), {}) == fingerprint(outer_with(), {})


@pytest.mark.parametrize("change", [{"limit": 4}, {"first": 1.5}, {"operator": "-"}, {"k": 2}])
def test_a_change_in_anything_it_uses_changes_the_key(change):
    assert fingerprint(outer_with(**change), {}) != fingerprint(outer_with(), {})


def test_the_compilers_options_change_the_key():
    sets = [{"fastmath": {"nsz", "arcp"}}, {"fastmath": {"arcp"}}, {"fastmath": {"arcp"}, "boundscheck": True}]
    assert len({fingerprint(outer_with(), options) for options in sets}) == 3


def test_a_broken_file_is_compiled_again(tmp_path, monkeypatch):
    monkeypatch.setenv("S13_CACHE_DIR", str(tmp_path))

    def twice(x):
        return 2 * x

    def compiled():
        function = njit("int64(int64)", cache=False)(twice) if False else njit(twice)
        function._cache = KernelCache("twice", fingerprint(twice, {}))
        before = dict(cache.statistics)
        assert function(21) == 42
        return {key: cache.statistics[key] - before[key] for key in before}

    assert compiled() == {"compiled": 1, "loaded": 0}
    assert compiled() == {"compiled": 0, "loaded": 1}
    (file,) = (tmp_path / "kernels").iterdir()
    file.write_bytes(file.read_bytes()[:100])
    assert compiled() == {"compiled": 1, "loaded": 0}
    assert compiled() == {"compiled": 0, "loaded": 1}


def test_a_cache_that_may_only_be_read_serves_and_new_kernels_go_elsewhere(tmp_path, monkeypatch):
    shared, own = tmp_path / "shared", tmp_path / "own"
    monkeypatch.setenv("S13_CACHE_DIR", str(shared))

    def thrice(x):
        return 3 * x

    def compiled():
        function = njit(thrice)
        function._cache = KernelCache("thrice", fingerprint(thrice, {}))
        before = dict(cache.statistics)
        assert function(2) == 6
        return {key: cache.statistics[key] - before[key] for key in before}

    assert compiled() == {"compiled": 1, "loaded": 0}
    monkeypatch.setattr(cache.tempfile, "gettempdir", lambda: str(own))
    monkeypatch.setattr(cache.os, "access", lambda folder, mode: not str(folder).startswith(str(shared)))
    assert cache.cache_folder().is_relative_to(own)
    assert compiled() == {"compiled": 0, "loaded": 1}


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="no user ids on this system")
def test_a_folder_of_another_user_is_not_trusted(tmp_path, monkeypatch):
    monkeypatch.setenv("S13_CACHE_DIR", str(tmp_path / "mine"))
    assert cache.cache_folder() == tmp_path / "mine" / "kernels"
    me = os.getuid()
    monkeypatch.setattr(cache.os, "getuid", lambda: me + 1)
    monkeypatch.setattr(cache.tempfile, "gettempdir", lambda: str(tmp_path / "tmp"))
    assert cache.cache_folder() != tmp_path / "mine" / "kernels"


def test_the_devices_own_code_can_be_cached():
    functions = [f for f in vars(ring).values() if hasattr(f, "s13_signature")]
    assert len(functions) == 9
    for function in functions:
        native.entry_point(function)
        assert not any(result.library.has_dynamic_globals for result in function.overloads.values())
