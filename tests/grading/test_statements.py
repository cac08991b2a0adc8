"""Which of a notebook's code is run, and that reading it never fails, whatever stands in a cell."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from s13lib.grading.statements import read_code


def texts(*cells):
    return [statement.text.strip() for statement in read_code(cells).statements]


@pytest.mark.parametrize(
    ("cell", "kept"),
    [
        ("import os\nx = 1\nprint(x)\nx", ["import os", "x = 1"]),
        ("a = 1; b = 2; f(a); c = 3", ["a = 1", "b = 2", "c = 3"]),
        ("é = 'é'; ü = 2", ["é = 'é'", "ü = 2"]),
        ("@one\n@two(3)\ndef f(x):\n    return x", ["@one\n@two(3)\ndef f(x):\n    return x"]),
        ("for i in range(3):\n    check(i)\nassert f(1)\nraise ValueError", ["for i in range(3):\n    check(i)"]),
        ("class A:\n    x: int = 1\ny: int = 2\nz += 1", ["class A:\n    x: int = 1", "y: int = 2", "z += 1"]),
        ("'a docstring'", []),
        ("", []),
        # what only a notebook understands
        ("!pip install x\nimport os", ["import os"]),
        ("%matplotlib inline\n%load_ext x\nx = 1", ["x = 1"]),
        ("%%time\nx = 1", ["x = 1"]),
        ("\n%%capture out\nx = 1", ["x = 1"]),
        ("%%bash\nls", []),
        ("%%writefile x.py\nx = 1", []),
        ("x = !ls\ny = %pwd\nz = 1", ["z = 1"]),
        ("np.dot?\nf(x)??\nz = 1", ["z = 1"]),
        ("if x:\n    %time f()\nz = 1", ["if x:\n    pass", "z = 1"]),
        # what only looks like it
        ("x = 5 \\\n  % 3", ["x = 5 \\\n  % 3"]),
        ("t = '''\n%x\n!y\n'''", ["t = '''\n%x\n!y\n'''"]),
        ("x = 1\r\ny = 2\r", ["x = 1", "y = 2"]),
    ],
)
def test_what_is_kept(cell, kept):
    assert texts(cell) == kept


def test_lines_and_cells_are_the_notebooks():
    code = read_code(["\n\nx = 1", "print()\n\n@d\ndef f():\n    pass"])
    assert [statement.place for statement in code.statements] == ["cell 1, line 3", "cell 2, line 3"]
    for statement in code.statements:
        assert statement.text.count("\n", 0, statement.text.index(statement.text.strip())) == 2


@pytest.mark.parametrize(
    "cell",
    [
        "def f(:\n",
        "(" * 300,
        "-" * 50_000 + "1",
        "a" + ".a" * 50_000,
        "not " * 50_000 + "1",
        "if a: pass\n" + "elif a: pass\n" * 50_000,
        "".join(" " * i + "if a:\n" for i in range(150)),
        "x = '\ud800'",
        "x = 1\0",
        "9" * 5_000,
        "x = 1\n" * 500_000,
    ],
)
def test_a_cell_that_cannot_be_read_is_a_fault_and_costs_no_other(cell):
    code = read_code(["x = 1", cell, "y = 2"])
    assert code.names >= {"x", "y"}
    (fault,) = code.faults
    assert fault.startswith("cell 2: ")


@given(st.lists(st.text(), max_size=3))
@settings(deadline=None)
def test_any_text_can_be_read(cells):
    read_code(cells)


def test_names_stubs_and_imports():
    code = read_code(
        [
            "from s13lib.grading import check\nimport numpy as np\na, (b, c) = 1, (2, 3)",
            "def f(x):\n    'says'\n    raise NotImplementedError\ndef g(x):\n    raise NotImplementedError",
            "def g(x):\n    import os\n    return x",
        ]
    )
    assert code.names == {"a", "b", "c", "f", "g"}
    assert code.stubs == {"f"}
    assert code.imports == {"s13lib.grading.check", "numpy", "os"}


def test_the_shape_sees_code_and_not_how_it_is_written():
    one = read_code(["x = 1\ndef f(a):\n    return a + 1"])
    same = read_code(["print('hello')\nx=1 # one", "def f(a):\n    '''Adds.'''\n\n    return (a+1)"])
    other = read_code(["x = 1\ndef f(b):\n    return b + 1"])
    assert one.shape == same.shape != other.shape
