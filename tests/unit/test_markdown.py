"""Markdown: whatever a step writes, what comes out is of the few tags, attributes and schemes that are allowed."""

from html.parser import HTMLParser

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.web.markdown import render_markdown

ALLOWED = {
    *("h1", "h2", "h3", "h4", "h5", "h6", "p", "br", "hr", "blockquote", "pre", "code", "em", "strong", "s"),
    *("ul", "ol", "li", "table", "thead", "tbody", "tr", "th", "td", "a"),
}
PIECES = [
    *("<script>", "</script>", "<img src=x onerror=alert(1)>", "<b id=evil>", "<!--", "-->", "<a href='javascript:1'>"),
    *("[a](", "![b](", "javascript:alert(1)", "data:text/html,x", "https://example.org/", "//x.org", "/ui/logout", ")"),
    *(
        '"title"',
        " onmouseover=1",
        "\n\n",
        "```",
        "`",
        "|a|\n|:-:|\n|b|\n",
        "# ",
        "- ",
        "1. ",
        "> ",
        "**",
        "~~",
        "&lt;",
    ),
    *(
        "<https://a.b>",
        "<javascript:1>",
        "[c]: javascript:1\n\n[c]",
        "\\",
        "&#106;avascript:",
        "\x00",
        "\u2028",
        "style=",
    ),
]
hostile = st.lists(st.sampled_from(PIECES) | st.text(max_size=5), max_size=25).map("".join)


class Tags(HTMLParser):
    """Collects what a browser would make of a text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.other: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_comment(self, data: str) -> None:
        self.other.append(data)

    def handle_decl(self, decl: str) -> None:
        self.other.append(decl)

    def handle_pi(self, data: str) -> None:
        self.other.append(data)


@given(hostile)
@example("".join(PIECES))
def test_only_what_is_allowed_comes_out(text: str) -> None:
    """No tag, attribute or scheme but those of the list, and no link that is not marked as a stranger's."""
    tags = Tags(render_markdown(text))
    assert tags.other == []
    for tag, attributes in tags.found:
        assert tag in ALLOWED
        if tag != "a":
            assert attributes.keys() <= ({"start"} if tag == "ol" else set())
            continue
        assert attributes.keys() <= {"href", "title", "rel"}
        assert set(str(attributes["rel"]).split()) == {"noopener", "nofollow", "noreferrer"}
        assert str(attributes.get("href", "https:")).lower().startswith(("https:", "http:", "mailto:"))


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("<b>x</b>", "<p>&lt;b&gt;x&lt;/b&gt;</p>"),
        ("~~a~~ *b*", "<p><s>a</s> <em>b</em></p>"),
        ("3. c", '<ol start="3">\n<li>c</li>\n</ol>'),
        (
            '![a <b> "c"](https://x.org/?a=1&b=2)',
            '<p><a href="https://x.org/?a=1&amp;b=2" rel="noopener nofollow noreferrer">image: a &lt;b&gt; "c"</a></p>',
        ),
    ],
)
def test_markdown_is_rendered(text: str, html: str) -> None:
    """Text becomes what its Markdown means, HTML in it the text that it is, and an image a link to it."""
    assert render_markdown(text).strip() == html
