"""Markdown: a step's text as a person wants to read it, and never as its writer could abuse it.

The invariant: what comes out holds no tag, attribute or URL scheme but those listed here: no script, no style, no
image of another host, no link that looks like one of ours.
"""

from collections.abc import Sequence
from typing import Any

import nh3
from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml
from markdown_it.token import Token
from markupsafe import Markup

from app.domain.visible import visible

RENDERED_BYTES = 128 * 1024
"""How much Markdown is rendered at most; the worst of it (a row of ``![``) then takes a few seconds, in a thread."""


def render_markdown(text: str) -> Markup:
    """Render Markdown as HTML that is safe to show. HTML in it shows as the text that it is."""
    return Markup(visible(_CLEANER.clean(_MARKDOWN.render(text))))  # noqa: S704 - the one place where markup is made: sanitised


def _image_as_link(_: Any, tokens: Sequence[Token], index: int, *__: Any) -> str:
    """Link to an image instead of loading it: its host would learn who reads what."""
    token = tokens[index]
    url, words = str(token.attrs.get("src", "")), token.content or "without a name"
    return f'<a href="{escapeHtml(url)}">image: {escapeHtml(words)}</a>'


_MARKDOWN = MarkdownIt("commonmark", {"html": False, "maxNesting": 20}).enable(["table", "strikethrough"])
_MARKDOWN.add_render_rule("image", _image_as_link)
_CLEANER = nh3.Cleaner(
    tags={
        *("h1", "h2", "h3", "h4", "h5", "h6", "p", "br", "hr", "blockquote", "pre", "code", "em", "strong", "s"),
        *("ul", "ol", "li", "table", "thead", "tbody", "tr", "th", "td", "a"),
    },
    attributes={"a": {"href", "title"}, "ol": {"start"}},
    url_schemes={"http", "https", "mailto"},
    url_relative="deny",
    link_rel="noopener nofollow noreferrer",
)
