"""Pictures and generated README blocks are up to date, and links inside the repository resolve."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]


def test_generated_blocks_and_pictures_are_up_to_date():
    result = subprocess.run(
        [sys.executable, "tools/build_docs.py", "--check"], cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True
    )
    assert result.stdout.decode() == ""
    assert result.returncode == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_within_the_repository_resolve(page):
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert missing == []


def test_a_newcomers_first_command_ends_in_the_course_and_two_more_need_no_browser():
    for name in ("README.md", "README.zh.md"):
        blocks = re.findall(r"^```\n(.*?)^```", (ROOT / name).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
        assert blocks[:2] == ["python3 run.py lab\n", "python3 run.py demo\npython3 run.py test\n"]


@pytest.mark.parametrize("name", ["README.md", "README.zh.md"])
def test_the_readmes_python_runs(name):
    pytest.importorskip("torch")
    (code,) = re.findall(r"^```python\n(.*?)^```", (ROOT / name).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    scope = {}
    exec(code, scope)
    assert scope["logits"].shape == (1, scope["model"].config.vocab)
    assert scope["runner"].dispatches == {(1, 1, "FULL"): 1}
