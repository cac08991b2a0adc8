"""Every notebook of both languages runs from top to bottom, shows no trouble, and asks nothing of the network."""

import re

import nbformat
import pytest

from tools.build_notebooks import LANGUAGES, sources
from tools.notebook_runs import REFERENCE, run_notebook

HAN = re.compile(r"[\u4e00-\u9fff]")


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", [path.stem for path in sources()])
def test_a_notebook_runs(run_of, name, language):
    run = run_of(name, language)
    assert run.error is None, run.error
    assert run.warnings() == []
    assert run.external_references() == []
    assert all(cell.execution_count for cell in run.notebook.cells if cell.cell_type == "code")
    # What code says is in the language of the prose. Nothing in an English notebook speaks Chinese.
    said = "\n".join(text for _, text in run.streams())
    assert bool(HAN.search(said)) is (language == "zh")


# ---- the judge is judged


@pytest.fixture
def ran(tmp_path):
    """Run code, one string a cell, in a notebook in a folder of that name."""

    def run(*codes, folder="en"):
        cells = [nbformat.v4.new_code_cell(code) for code in codes]
        (tmp_path / folder).mkdir(exist_ok=True)
        path = tmp_path / folder / "00_small.ipynb"
        nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
        before = path.read_bytes()
        result = run_notebook(path)
        assert path.read_bytes() == before
        return result

    return run


def test_an_error_is_told_with_its_cell(ran):
    run = ran("x = 1", "x / 0", "print('not reached')")
    assert "ZeroDivisionError" in run.error
    assert "x / 0" in run.error
    assert list(run.streams()) == []


def test_warnings_and_erased_progress(ran):
    run = ran(
        "import warnings; warnings.warn('careful')",
        "import sys; print('oh', file=sys.stderr)",
        "import sys; sys.stderr.write('\\r[###...]'); sys.stderr.write('\\r        \\r')",
        "print('fine')",
    )
    assert run.error is None
    assert len(run.warnings()) == 2
    assert "UserWarning: careful" in run.warnings()[0]
    assert run.warnings()[1] == "oh\n"


@pytest.mark.parametrize(
    "code",
    [
        "import urllib.request; urllib.request.urlopen('http://example.com', timeout=5)",
        "import socket; socket.create_connection(('192.0.2.1', 80), timeout=5)",
        "import socket; socket.getaddrinfo('pypi.org', 443)",
    ],
)
def test_an_external_request_fails(ran, code):
    assert "external request refused" in ran(code).error


def test_this_machine_may_be_asked_and_the_folder_gives_the_language(ran):
    run = ran(
        "import socket\nserver = socket.create_server(('127.0.0.1', 0))\n"
        "socket.create_connection(server.getsockname()).close()",
        "from s13lib.widgets import say\nsay('one', '一')",
        folder="zh",
    )
    assert run.error is None
    assert list(run.streams()) == [("stdout", "一\n")]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('<img alt="" src="https://example.com/a.png">', True),
        ("<script src='//cdn.example.com/a.js'></script>", True),
        ('<link rel="stylesheet" href="https://example.com/a.css">', True),
        ("@import 'https://example.com/a.css'", True),
        ("a { background: url(https://example.com/a.png) }", True),
        ("![a picture](https://example.com/a.png)", True),
        ('import("https://example.com/a.mjs")', True),
        ('<a href="https://example.com">a link waits for a click</a>', False),
        ("[a link](https://example.com)", False),
        ('<svg xmlns="http://www.w3.org/2000/svg"></svg>', False),
        ('<img src="data:image/png;base64,AAAA">', False),
    ],
)
def test_what_a_browser_would_fetch_is_found(text, found):
    assert bool(REFERENCE.search(text)) is found
