"""What every picture must hold once a browser has laid it out."""

from itertools import combinations


def check_picture(page, picture, width, least):
    """More than ``least`` texts, none over another, none off the canvas of ``width`` pixels, and no request."""
    requests = []
    page.on("request", lambda request: requests.append(request.url))
    page.set_content(f"<body style='margin:0'>{picture}</body>")
    boxes, height = page.evaluate(
        "() => [[...document.querySelectorAll('text')].map(t => { const b = t.getBoundingClientRect();"
        " return [t.textContent, b.left, b.top, b.right, b.bottom] }),"
        " document.querySelector('svg').getBoundingClientRect().height]"
    )
    assert len(boxes) > least
    for name, left, top, right, bottom in boxes:
        assert left >= 0, name
        assert top >= 0, name
        assert right <= width, name
        assert bottom <= height + 1, name
    for (one, l1, t1, r1, b1), (two, l2, t2, r2, b2) in combinations(boxes, 2):
        apart = r1 <= l2 or r2 <= l1 or b1 - 1 <= t2 or b2 - 1 <= t1  # line boxes may touch by a pixel
        assert apart, (one, two)
    assert requests == []
