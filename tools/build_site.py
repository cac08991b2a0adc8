"""Run every lesson in both languages and write pages for those who only read: ``site/index.html``.

The pages hold their pictures and their styles, and ask no network for anything. A control that moves in the notebook is
shown as its picture, and says so. ``--only 04`` runs one lesson, ``--output FOLDER`` writes elsewhere.
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import dataclass
from html import escape
from pathlib import Path

import nbformat
from nbconvert.filters import ansi2html
from nbconvert.filters.markdown_mistune import markdown2html_mistune
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tools.build_notebooks import LANGUAGES, Lesson, built_path, faults, read_lesson, sources  # noqa: E402
from tools.notebook_runs import Run, run_notebook  # noqa: E402

WIDGET = "application/vnd.jupyter.widget-view+json"
# What a page shows of an output that comes in several forms: the first of these that there is.
FORMS = ["text/html", "image/svg+xml", "image/png", "text/markdown", "text/plain"]
WORDS = {
    "en": {
        "name": "English",
        "course": "Operator fusion and CUDA Graphs for LLM decode",
        "about": "The lessons as they ran, with their figures. What was measured was measured on the machine that "
        "wrote these pages; each figure says so. In the notebooks themselves you run, change and measure on your own.",
        "minutes": "{} min",
        "contents": "All lessons",
        "picture": "In the notebook this picture has controls to move.",
        "code": "code",
        "previous": "Previous",
        "next": "Next",
    },
    "zh": {
        "name": "中文",
        "course": "LLM decode 的算子融合与 CUDA Graph",
        "about": "这里是各课运行之后的样子，图都在。凡是实测的数字，都是在生成这些网页的机器上测得的，"
        "每张图都写明了来源。在 notebook 里，你可以亲手运行、修改，并在自己的机器上测量。",
        "minutes": "{} 分钟",
        "contents": "全部课程",
        "picture": "在 notebook 里，这张图带有可以拨动的控件。",
        "code": "代码",
        "previous": "上一课",
        "next": "下一课",
    },
}
STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0; background: #fff; color: #1f2328; font: 16px/1.6 system-ui, "Noto Sans", "Noto Sans CJK SC",
  "PingFang SC", "Microsoft YaHei", sans-serif; }
main, nav { max-width: 860px; margin: 0 auto; padding: 0 16px; }
nav { display: flex; flex-wrap: wrap; gap: 4px 20px; padding-top: 12px; padding-bottom: 12px; font-size: 14px; }
nav.top { border-bottom: 1px solid #d8dee4; }
nav.end { border-top: 1px solid #d8dee4; margin-top: 40px; padding-bottom: 40px; justify-content: space-between; }
nav .language { margin-left: auto; }
a { color: #0550ae; }
a.anchor-link { visibility: hidden; text-decoration: none; padding-left: 6px; }
h1:hover a, h2:hover a, h3:hover a { visibility: visible; }
h1 { font-size: 30px; line-height: 1.25; } h2 { font-size: 22px; margin-top: 40px; } h3 { font-size: 18px; }
table { border-collapse: collapse; margin: 12px 0; font-size: 14px; display: block; overflow-x: auto; }
th, td { border: 1px solid #d8dee4; padding: 4px 10px; text-align: left; vertical-align: top; }
th { background: #f6f8fa; }
code, pre { font: 13px/1.45 ui-monospace, "SF Mono", Menlo, Consolas, "Liberation Mono", "Noto Sans Mono CJK SC",
  monospace; }
:not(pre) > code { background: #f2f4f7; padding: 1px 4px; border-radius: 3px; }
pre { margin: 0; white-space: pre-wrap; overflow-wrap: anywhere; }
.input { background: #f6f8fa; border-left: 3px solid #8c959f; padding: 10px 14px; margin: 18px 0 8px; }
details.input { background: none; border-left: 0; padding: 0; margin: 10px 0 0; font-size: 12px; color: #57606a; }
details.input[open] { border-left: 3px solid #8c959f; background: #f6f8fa; padding: 6px 14px; }
.output { padding: 4px 14px; overflow-x: auto; }
.output pre { padding: 4px 0; }
.output svg, .output img { max-width: 100%; height: auto; }
figure { margin: 0; } figcaption { font-size: 14px; color: #57606a; margin: 4px 0; }
blockquote { border-left: 3px solid #d8dee4; margin-left: 0; padding-left: 14px; color: #57606a; }
ol.lessons li { margin: 10px 0; } ol.lessons span { color: #57606a; font-size: 14px; }
"""


@dataclass(frozen=True)
class Page:
    """One lesson in one language, run."""

    lesson: Lesson
    language: str
    run: Run

    @property
    def path(self) -> str:
        """Where it lies in the site."""
        return f"{self.language}/{self.lesson.name}.html"


# ---- notebook to HTML


def cells_html(notebook: nbformat.NotebookNode, language: str) -> str:
    """The cells of a notebook that ran, as HTML without a frame."""
    return "\n".join(
        prose_html(cell.source) if cell.cell_type == "markdown" else code_html(cell, language)
        for cell in notebook.cells
    )


def prose_html(source: str) -> str:
    """Prose; its links from notebook to notebook lead from page to page."""
    html = markdown2html_mistune(source)
    return re.sub(r'(href="(?!https?:)[^"]*?)\.ipynb(["#])', r"\1.html\2", html)


def code_html(cell: nbformat.NotebookNode, language: str) -> str:
    """A code cell and what it showed. Code that only speaks is folded, as in the notebook."""
    code = highlight(cell.source, PythonLexer(), HtmlFormatter())
    if cell.metadata.get("jupyter", {}).get("source_hidden"):
        code = f'<details class="input"><summary>{WORDS[language]["code"]}</summary>{code}</details>'
    else:
        code = f'<div class="input">{code}</div>'
    outputs = "".join(f'<div class="output">{output_html(output, language)}</div>' for output in cell.outputs)
    return code + outputs


def output_html(output: nbformat.NotebookNode, language: str) -> str:
    """One output, in the first of its ``FORMS``."""
    if output.output_type == "stream":
        return f"<pre>{ansi2html(output.text)}</pre>"
    data = output.data
    if WIDGET in data and "text/html" not in data:  # the quiz brings a form of its own for such pages
        return still(data, language)
    form = next((form for form in FORMS if form in data), None)
    if form in ("text/html", "image/svg+xml"):
        return data[form]
    if form == "image/png":
        return f'<img alt="{escape(data.get("text/plain", ""))}" src="data:image/png;base64,{data[form].strip()}">'
    return prose_html(data[form]) if form == "text/markdown" else f"<pre>{ansi2html(data.get(form, ''))}</pre>"


def still(data: dict, language: str) -> str:
    """A live control as a picture, with the sentence that it reads out and a line that says what is missing here."""
    picture = data.get("image/svg+xml") or ""
    sentence = data.get("text/plain") or ""
    words = f"<strong>{escape(sentence)}</strong><br>" if sentence else ""
    return f"<figure>{picture}<figcaption>{words}{WORDS[language]['picture']}</figcaption></figure>"


def document(language: str, title: str, body: str, style: str) -> str:
    """A whole page."""
    return (
        f'<!DOCTYPE html>\n<html lang="{"zh-CN" if language == "zh" else "en"}">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def lesson_html(page: Page, lessons: list[Lesson]) -> str:
    """A lesson's page, with the way to its neighbours and to its other language."""
    words, (other,) = WORDS[page.language], [language for language in LANGUAGES if language != page.language]
    position = [lesson.name for lesson in lessons].index(page.lesson.name)

    def neighbour(step: int, label: str) -> str:
        if not 0 <= position + step < len(lessons):
            return "<span></span>"
        lesson = lessons[position + step]
        arrow = ("← {}", "{} →")[step > 0].format(words[label])
        return f'<a href="{lesson.name}.html">{arrow}：{escape(lesson.titles[page.language])}</a>'.replace(
            "：", "：" if page.language == "zh" else ": "
        )

    top = (
        f'<nav class="top"><a href="../index.html#{page.language}">{words["contents"]}</a>'
        f"<span>{words['minutes'].format(page.lesson.minutes)}</span>"
        f'<a class="language" href="../{other}/{page.lesson.name}.html">{WORDS[other]["name"]}</a></nav>'
    )
    end = f'<nav class="end">{neighbour(-1, "previous")}{neighbour(1, "next")}</nav>'
    body = f"{top}\n<main>\n{cells_html(page.run.notebook, page.language)}\n</main>\n{end}"
    style = STYLE + HtmlFormatter(style="default").get_style_defs(".highlight")
    return document(page.language, page.lesson.titles[page.language], body, style)


def index_html(lessons: list[Lesson]) -> str:
    """The list of lessons, in both languages."""
    parts = []
    for language in LANGUAGES:
        words = WORDS[language]
        items = "\n".join(
            f'<li value="{int(lesson.name[:2])}"><a href="{language}/{lesson.name}.html">'
            f"{escape(lesson.titles[language])}</a> <span>{words['minutes'].format(lesson.minutes)}</span></li>"
            for lesson in lessons
        )
        parts.append(
            f'<section id="{language}" lang="{"zh-CN" if language == "zh" else "en"}"><h1>{words["course"]}</h1>\n'
            f'<p>{words["about"]}</p>\n<ol class="lessons">\n{items}\n</ol></section>'
        )
    links = "".join(f'<a href="#{language}">{WORDS[language]["name"]}</a>' for language in LANGUAGES)
    body = f'<nav class="top">{links}</nav>\n<main>\n{"".join(parts)}\n</main>'
    return document("en", WORDS["en"]["course"], body, STYLE)


# ---- the whole site


def write_site(pages: list[Page], lessons: list[Lesson], folder: Path) -> list[Path]:
    """Write the index and ``pages``; return all paths."""
    texts = {"index.html": index_html(lessons)} | {page.path: lesson_html(page, lessons) for page in pages}
    written = []
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
        written.append(path)
    return written


def main(arguments: list[str]) -> int:
    """Run the lessons, write the pages; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NN", help="lessons whose file names start so")
    parser.add_argument("--output", type=Path, default=ROOT / "site", metavar="FOLDER", help="default: site")
    options = parser.parse_args(arguments)
    if stale := faults(only=options.only):
        print("\n".join([*stale, "First: python3 run.py notebooks"]), file=sys.stderr)
        return 1
    wanted = {path.stem for path in sources(only=options.only)}
    lessons = [read_lesson(path) for path in sources()]
    pages, failed = [], False
    for lesson in (lesson for lesson in lessons if lesson.name in wanted):
        for language in LANGUAGES:
            run = run_notebook(built_path(lesson.name, language))
            print(f"{language}/{lesson.name}: {run.seconds:.0f} s", flush=True)
            if run.error:
                print(run.error, file=sys.stderr)
                failed = True
            else:
                pages.append(Page(lesson, language, run))
    if failed:
        print("No page was written: repair the lessons above.", file=sys.stderr)
        return 1
    write_site(pages, lessons, options.output)
    print(f"wrote {len(pages)} lessons; open {options.output / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
