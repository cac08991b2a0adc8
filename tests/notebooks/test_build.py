"""The stored notebooks equal their sources, and the check finds everything that it is there to find."""

import json
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from tools.build_notebooks import (
    LANGUAGES,
    Code,
    SourceError,
    build,
    built_path,
    faults,
    joined,
    notebook_text,
    read_lesson,
    sources,
)

ROOT = Path(__file__).resolve().parents[2]

HEADER = "# ---\n# title_en: A lesson\n# title_zh: 一课\n# minutes: 5\n# ---\n"
TITLE = '# %% [markdown] lang="en"\n# # A lesson\n# %% [markdown] lang="zh"\n# # 一课\n'
SMALL = HEADER + TITLE + "# %%\nx = 1\n# %%\nx + 1\n"


@pytest.fixture
def folder(tmp_path):
    """A folder of notebooks with one small source, built."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "00_small.py").write_text(SMALL, encoding="utf-8")
    build(tmp_path)
    return tmp_path


def source(tmp_path, text):
    path = tmp_path / "00_small.py"
    path.write_text(text, encoding="utf-8")
    return path


# ---- what is stored


def test_the_stored_notebooks_are_built_from_their_sources_complete_and_clean():
    assert faults() == []


def test_the_check_of_the_command_line_agrees():
    done = subprocess.run(
        [sys.executable, "tools/build_notebooks.py", "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.stderr == ""
    assert done.returncode == 0


def test_the_series_is_complete():
    assert [path.stem[:2] for path in sources()] == [f"{number:02}" for number in range(9)]


@pytest.mark.parametrize("path", sources(), ids=lambda path: path.stem)
def test_each_lesson_links_only_to_what_exists(path):
    lesson = read_lesson(path)
    for language in LANGUAGES:
        for cell in nbformat.reads(notebook_text(lesson, language), as_version=4).cells:
            if cell.cell_type == "markdown":
                for target in find_links(cell.source):
                    assert (built_path(lesson.name, language).parent / target).exists(), target


def find_links(text):
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    return [target.partition("#")[0] for target in targets if not target.startswith(("http", "#"))]


# ---- reading a source


def test_a_source_is_read(tmp_path):
    lesson = read_lesson(source(tmp_path, SMALL))
    assert (lesson.name, lesson.titles, lesson.minutes) == ("00_small", {"en": "A lesson", "zh": "一课"}, 5)
    assert (lesson.cells[0].en, lesson.cells[0].zh) == ("# A lesson", "# 一课")
    assert lesson.cells[1:] == (Code("x = 1"), Code("x + 1"))


EN = '# %% [markdown] lang="en"\n# Words.\n'
ZH = '# %% [markdown] lang="zh"\n# 文字。\n'


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (HEADER + TITLE + EN + "# %%\nx = 1\n", "cell 3 ('Words.'): the English prose lacks its lang=\"zh\" twin"),
        (HEADER + TITLE + EN, 'lacks its lang="zh" twin'),
        (HEADER + TITLE + EN + EN + ZH, "cell 3 ('Words.'): the English prose lacks its lang=\"zh\" twin"),
        (HEADER + TITLE + ZH + EN, "cell 3 ('文字。'): expected code, or prose with lang=\"en\""),
        (HEADER + TITLE + "# %% [markdown]\n# Words.\n", 'expected code, or prose with lang="en"'),
        (HEADER + TITLE + '# %% lang="zh"\nx = 1\n', "a code cell is for both languages and takes no ['lang']"),
        (HEADER + TITLE + '# %% tags=["x"]\nx = 1\n', "takes no ['tags']"),
        (HEADER + TITLE + "# %%\n# %%\nx = 1\n", "the code cell is empty"),
        (HEADER + TITLE + "# %%\nx = = 1\n", "invalid syntax, line 1"),
        (
            HEADER + TITLE + EN + ZH.replace("文字。", "Words."),
            "the English cell must be English, and its twin Chinese",
        ),
        (HEADER + TITLE + EN.replace("Words.", "文字。") + ZH, "the English cell must be English"),
        (HEADER + EN + ZH, "the first cell must be prose that starts with the title"),
        (HEADER + "# %%\nx = 1\n", "the first cell must be prose that starts with the title"),
        (HEADER.replace("minutes: 5", "minutes: five") + TITLE, "the header must hold title_en, title_zh, minutes"),
        (HEADER.replace("# title_zh: 一课\n", "") + TITLE, "the header must hold"),
        (TITLE, "the header must hold"),
    ],
)
def test_a_source_that_breaks_a_rule_is_refused(tmp_path, text, told):
    with pytest.raises(SourceError) as error:
        read_lesson(source(tmp_path, text))
    assert told in str(error.value)
    assert str(error.value).startswith("00_small.py")


def test_a_shell_command_is_code(tmp_path):
    lesson = read_lesson(source(tmp_path, HEADER + TITLE + "# %%\n# !s13 doctor\n"))
    assert lesson.cells[1] == Code("!s13 doctor")
    assert "!s13 doctor" in notebook_text(lesson, "en")


# ---- what is built


def test_the_notebook_of_a_language_has_its_prose_and_all_code(tmp_path):
    lesson = read_lesson(source(tmp_path, SMALL))
    english, chinese = (nbformat.reads(notebook_text(lesson, language), as_version=4) for language in LANGUAGES)
    assert [cell.source for cell in english.cells] == ["# A lesson", "x = 1", "x + 1"]
    assert [cell.source for cell in chinese.cells] == ["# 一课", "x = 1", "x + 1"]
    assert [cell.id for cell in english.cells] == [cell.id for cell in chinese.cells]
    assert english.metadata.title == "A lesson"
    assert chinese.metadata.title == "一课"
    assert chinese.metadata.s13 == {"language": "zh", "minutes": 5, "source": "notebooks/src/00_small.py"}
    assert chinese.metadata.kernelspec.name == "python3"


def test_ids_stay_when_cells_are_put_in_between_and_differ_when_text_repeats(tmp_path):
    def ids(text):
        lesson = read_lesson(source(tmp_path, text))
        return [cell.id for cell in nbformat.reads(notebook_text(lesson, "en"), as_version=4).cells]

    before = ids(SMALL)
    after = ids(SMALL.replace("# %%\nx + 1", EN + ZH + "# %%\ny = 2\n# %%\nx + 1"))
    assert (after[0], after[1], after[4]) == tuple(before)
    twice = ids(SMALL + "# %%\nx + 1\n# %%\nx + 1\n")
    assert twice[:3] == before
    assert len(set(twice)) == len(twice)


@pytest.mark.parametrize(
    ("code", "folded"),
    [
        ('say("a", "b")', True),
        ('say("a", "b")\nsay(f"{x}", "b")', True),
        ('if x:\n    say("a", "b")\nelse:\n    say("c", "d")', True),
        ('for x in y:\n    say("a", "b")', True),
        ('y = f(x)\nsay("a", "b")', False),
        ('if x:\n    y = f(x)\nelse:\n    say("a", "b")', False),
        ("f(x)", False),
        ("!s13 doctor", False),
        ("# nothing", False),
    ],
)
def test_code_that_only_speaks_is_folded(code, folded):
    assert Code(code).only_speaks is folded


@pytest.mark.parametrize(
    ("wrapped", "flowing"),
    [
        ("甲，\n乙", "甲，乙"),
        ("甲\n乙", "甲乙"),
        ("甲，\nGPU 乙", "甲，GPU 乙"),
        ("用 GPU\n乙", "用 GPU\n乙"),  # the browser's space is right there
        ("甲。\n\n乙", "甲。\n\n乙"),
        ("# 甲\n乙", "# 甲\n乙"),
        ("* 甲，\n  乙\n* 丙", "* 甲，乙\n* 丙"),
        ("甲：\n* 乙\n1. 丙", "甲：\n* 乙\n1. 丙"),
        ("甲：\n| 乙 |\n| 丙 |", "甲：\n| 乙 |\n| 丙 |"),
        ("甲：\n```\n乙\n丙\n```", "甲：\n```\n乙\n丙\n```"),
        ("甲，\n**先猜**：\n乙", "甲，**先猜**：乙"),
    ],
)
def test_wrapped_chinese_lines_are_joined(wrapped, flowing):
    assert joined(wrapped) == flowing


# ---- what --check finds


def test_a_fresh_build_has_no_faults_and_building_again_writes_nothing(folder):
    assert faults(folder) == []
    assert build(folder) == []


def changed(folder, language, change):
    path = folder / language / "00_small.ipynb"
    notebook = json.loads(path.read_text(encoding="utf-8"))
    change(notebook)
    path.write_text(json.dumps(notebook), encoding="utf-8")
    return faults(folder)


def with_output(notebook):
    notebook["cells"][1]["outputs"] = [{"output_type": "stream", "name": "stdout", "text": ["1"]}]


def with_other_code(notebook):
    notebook["cells"][2]["source"] = ["x + 2"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (with_output, "notebooks/zh/00_small.ipynb: holds outputs."),
        (lambda n: n["cells"][1].update(execution_count=3), "notebooks/zh/00_small.ipynb: holds execution counts."),
        (lambda n: n["metadata"].update(widgets={}), "notebooks/zh/00_small.ipynb: holds the state of widgets."),
        (lambda n: n["metadata"].update(colab={}), "notebooks/zh/00_small.ipynb: holds metadata of its own: colab."),
        (lambda n: n["cells"][0]["metadata"].update(a=1), "notebooks/zh/00_small.ipynb: holds metadata of cells."),
        (lambda n: n["cells"][0].update(attachments={"a": {}}), "notebooks/zh/00_small.ipynb: holds attachments."),
        (
            lambda n: n["cells"].pop(0),
            "notebooks/zh/00_small.ipynb: differs from its source, notebooks/src/00_small.py.",
        ),
        (with_other_code, "00_small: code cells differ between the two languages."),
        (lambda n: n["cells"].pop(), "00_small: code cells differ between the two languages."),
    ],
)
def test_what_a_notebook_may_not_hold_is_told(folder, change, told):
    assert any(sentence.startswith(told) for sentence in changed(folder, "zh", change))
    build(folder)
    assert faults(folder) == []


def test_a_missing_notebook_and_one_without_a_source_are_told(folder):
    (folder / "en" / "00_small.ipynb").rename(folder / "en" / "99_other.ipynb")
    assert faults(folder) == ["notebooks/en/00_small.ipynb: missing.", "notebooks/en/99_other.ipynb: has no source."]


def test_what_is_not_json_is_told(folder):
    (folder / "en" / "00_small.ipynb").write_text("<html>")
    assert faults(folder) == ["notebooks/en/00_small.ipynb: is not JSON."]


def test_a_stale_notebook_and_a_broken_source_are_told(folder):
    (folder / "src" / "00_small.py").write_text(SMALL.replace("x = 1", "x = 7"), encoding="utf-8")
    assert faults(folder) == [
        f"notebooks/{language}/00_small.ipynb: differs from its source, notebooks/src/00_small.py."
        for language in LANGUAGES
    ]
    (folder / "src" / "00_small.py").write_text(HEADER + TITLE + EN, encoding="utf-8")
    (told,) = faults(folder)
    assert 'lacks its lang="zh" twin' in told
