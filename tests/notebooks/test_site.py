"""The pages for those who only read: whole, without the network, with their pictures."""

import re

import nbformat
import pytest

from tools.build_notebooks import LANGUAGES, Code, Lesson, Prose, read_lesson, sources
from tools.build_site import STYLE, WIDGET, Page, cells_html, index_html, write_site
from tools.notebook_runs import REFERENCE, Run

PICTURE = '<svg xmlns="http://www.w3.org/2000/svg" width="20" height="20"><rect width="9" height="9"/></svg>'


def code_cell(source, *outputs, **metadata):
    return nbformat.v4.new_code_cell(source, outputs=list(outputs), metadata=metadata)


def shows(**data):
    return nbformat.v4.new_output("display_data", data={name.replace("_", "/", 1): text for name, text in data.items()})


def html(*cells, language="en"):
    return cells_html(nbformat.v4.new_notebook(cells=list(cells)), language)


def test_prose_becomes_html_and_links_lead_to_pages():
    out = html(
        nbformat.v4.new_markdown_cell("## Head\n\n[next](01_profile.ipynb#top) [out](https://a.example/b.ipynb)")
    )
    assert "<h2" in out
    assert 'href="01_profile.html#top"' in out
    assert 'href="https://a.example/b.ipynb"' in out


def test_code_is_escaped_and_folded_where_the_notebook_folds_it():
    out = html(code_cell("a < b"))
    assert '<div class="input">' in out
    assert "&lt;" in out
    out = html(code_cell('say("a", "b")', jupyter={"source_hidden": True}), language="zh")
    assert '<details class="input"><summary>代码</summary>' in out


def test_text_output_is_escaped():
    out = html(code_cell("x", nbformat.v4.new_output("stream", text="<b> & \x1b[31mred\x1b[0m")))
    assert "&lt;b&gt; &amp; " in out
    assert "\x1b" not in out


def test_an_output_is_shown_in_its_best_form():
    svg = nbformat.v4.new_output("display_data", data={"image/svg+xml": PICTURE, "text/plain": "a picture"})
    assert PICTURE in html(code_cell("x", svg))
    assert "a picture" not in html(code_cell("x", svg))
    assert '<img alt="plot" src="data:image/png;base64,AAAA">' in html(
        code_cell("x", nbformat.v4.new_output("display_data", data={"image/png": "AAAA\n", "text/plain": "plot"}))
    )
    assert "<pre>&lt;object&gt;</pre>" in html(code_cell("x", shows(text_plain="<object>")))
    assert "<table>" in html(code_cell("x", shows(text_html="<table></table>", text_plain="x")))


def test_a_live_control_becomes_a_picture_with_its_sentence():
    data = {WIDGET: {"model_id": "1"}, "image/svg+xml": PICTURE, "text/plain": "Step < 2 ms."}
    out = html(code_cell("x", nbformat.v4.new_output("display_data", data=data)), language="zh")
    assert PICTURE in out
    assert "Step &lt; 2 ms." in out
    assert "带有可以拨动的控件" in out
    assert "model_id" not in out


def test_the_quiz_becomes_its_questions_with_folded_answers():
    from s13lib.widgets import quiz_widget

    data = quiz_widget(language="en")._repr_mimebundle_()
    out = html(code_cell("x", nbformat.v4.new_output("display_data", data=data)))
    assert out.count("<details>") == 6
    assert "controls to move" not in out


def small_site(folder):
    lessons = [
        Lesson("00_one", {"en": "One", "zh": "一"}, 5, (Prose("# One", "# 一"), Code("x"))),
        Lesson("01_two", {"en": "Two & more", "zh": "二"}, 7, (Prose("# Two", "# 二"),)),
    ]
    cells = [nbformat.v4.new_markdown_cell("# Head"), code_cell("x", shows(text_html=PICTURE))]
    run = Run(nbformat.v4.new_notebook(cells=cells), 1.0, None)
    pages = [Page(lesson, language, run) for lesson in lessons for language in LANGUAGES]
    return write_site(pages, lessons, folder)


def test_the_site_is_whole_and_asks_no_network(tmp_path):
    written = small_site(tmp_path)
    assert sorted(str(path.relative_to(tmp_path)) for path in written) == [
        "en/00_one.html",
        "en/01_two.html",
        "index.html",
        "zh/00_one.html",
        "zh/01_two.html",
    ]
    for path in written:
        text = path.read_text(encoding="utf-8")
        assert REFERENCE.findall(text) == []
        assert "<script" not in text
        for target in re.findall(r'href="([^"#]+)', text):
            assert (path.parent / target).exists(), target
    page = (tmp_path / "zh" / "00_one.html").read_text(encoding="utf-8")
    assert '<html lang="zh-CN">' in page
    assert "<title>一</title>" in page
    assert '<a href="01_two.html">下一课 →：二</a>' in page
    assert '<a class="language" href="../en/00_one.html">English</a>' in page
    assert PICTURE in page
    page = (tmp_path / "en" / "01_two.html").read_text(encoding="utf-8")
    assert "<title>Two &amp; more</title>" in page
    assert '<a href="00_one.html">← Previous: One</a>' in page


def test_the_index_lists_every_lesson_in_both_languages():
    text = index_html([read_lesson(path) for path in sources()])
    for path in sources():
        lesson = read_lesson(path)
        for language in LANGUAGES:
            assert f'href="{language}/{lesson.name}.html"' in text
            assert lesson.titles[language] in text
    assert REFERENCE.findall(text + STYLE) == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_browser_shows_a_page_without_the_network(run_of, tmp_path, language, page):
    lesson = read_lesson(sources(only=["00"])[0])
    run = run_of(lesson.name, language)
    write_site([Page(lesson, language, run)], [lesson], tmp_path)
    pictures = sum("<svg" in data for kind, data in run.shown() if kind == "text/html")
    page.set_viewport_size({"width": 700, "height": 900})
    asked, errors = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    address = (tmp_path / language / f"{lesson.name}.html").as_uri()
    page.goto(address)
    assert page.title() == lesson.titles[language]
    assert page.locator(".output svg").count() == pictures >= 3
    assert page.evaluate("document.documentElement.scrollWidth") <= 700
    assert asked == [address]
    assert errors == []
