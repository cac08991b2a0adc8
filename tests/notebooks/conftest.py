"""Each notebook runs once in a session, whatever the number of tests that look at it."""

import functools

import pytest

from tools.build_notebooks import built_path
from tools.notebook_runs import run_notebook


@pytest.fixture(scope="session")
def run_of():
    pytest.importorskip("numba")
    # Matplotlib builds its list of fonts once a machine, and says so on standard error: not while a lesson runs.
    pytest.importorskip("matplotlib.font_manager")

    @functools.cache
    def run(name, language):
        return run_notebook(built_path(name, language))

    return run
