"""``s13`` runs a command in this process and returns what a person would see."""

from typing import NamedTuple

import pytest

from s13lib.cli import main


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def s13(capsys):
    def run(*arguments: object) -> Outcome:
        code = main([str(a) for a in arguments])
        return Outcome(code, *capsys.readouterr())

    return run


@pytest.fixture
def refuses(s13):
    """Run a command that must fail: exit code 2, nothing on stdout, one sentence with ``words`` on stderr."""

    def run(words: str, *arguments: object) -> None:
        code, out, err = s13(*arguments)
        assert code == 2
        assert out == ""
        assert err.startswith("error: ")
        assert err.count("\n") == 1
        assert words in err
        assert "Traceback" not in err

    return run
