"""Markdown in a browser: what texts become, and that a stream ends like the whole text."""

import pytest

pytest.importorskip("playwright", reason="Playwright is not here: pip install playwright==1.65.0")

from collections.abc import Iterator

from fake_answers import HOSTILE, RICH
from fake_server import FakeServer
from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.oracle

# Run a script with the page's MarkdownView and with `outline`: nodes as tags and texts.
SCRIPT = """async (given) => {
  const { MarkdownView } = await import(new URL("page/js/markdown/view.js", location.origin));
  const plain = (node) => node.nodeType === 3 ? node.data
    : [node.tagName.toLowerCase(), ...[...node.childNodes].map(plain)];
  const block = (node) => {
    if (node.className === "table") return plain(node.firstChild);
    if (node.className !== "code-block") return plain(node);
    const text = (part) => node.querySelector(part).textContent;
    return ["pre", text(".code-language"), text("code")];
  };
  const outline = (view) => [...view.element.children].map(block);
  const view = new MarkdownView();
  %s
}"""
SHOW = SCRIPT % "view.show(given); return outline(view);"
STREAM = (
    SCRIPT
    % """const [text, size] = given;
  for (let end = size; end < text.length; end += size) view.show(text.slice(0, end), true);
  view.show(text);
  return outline(view);"""
)
REPEAT = (
    SCRIPT
    % """view.show(given, true);
  view.show(given + "x", true);
  return view.element.textContent;"""
)
CASES = [
    ("plain", [["p", "plain"]]),
    ("one\ntwo", [["p", "one", ["br"], "two"]]),
    ("# A *b*", [["h1", "A ", ["em", "b"]]]),
    ("###### A ##", [["h6", "A"]]),
    ("#no", [["p", "#no"]]),
    (
        "a **b** _c_ ~~d~~ `e`",
        [["p", "a ", ["strong", "b"], " ", ["em", "c"], " ", ["del", "d"], " ", ["code", "e"]]],
    ),
    ("***a***", [["p", ["strong", ["em", "a"]]]]),
    ("2 * 3 * 4 and snake_case_name", [["p", "2 * 3 * 4 and snake_case_name"]]),
    (r"\*a\* and \<b>", [["p", "*a* and <b>"]]),
    ("`` a`b `` and `*c*`", [["p", ["code", "a`b"], " and ", ["code", "*c*"]]]),
    ("**never ended", [["p", "**never ended"]]),
    ("[a *b*](https://c.d/e_(f))", [["p", ["a", "a ", ["em", "b"]]]]),
    ("[a](javascript:x) ![b](data:x)", [["p", "[a](javascript:x) ![b](data:x)"]]),
    ("![alt](https://c.d/e.png)", [["p", ["a", "alt"]]]),
    ("see https://c.d/e.", [["p", "see ", ["a", "https://c.d/e"], "."]]),
    ("<https://c.d>", [["p", ["a", "https://c.d"]]]),
    ("- a\n- b\n  - c\n\nd", [["ul", ["li", "a"], ["li", "b", ["ul", ["li", "c"]]]], ["p", "d"]]),
    ("1. a\n2. b\n   more", [["ol", ["li", "a"], ["li", "b", ["br"], "more"]]]),
    ("3) a\n\n4) b", [["ol", ["li", ["p", "a"]], ["li", ["p", "b"]]]]),
    ("text\n- a", [["p", "text"], ["ul", ["li", "a"]]]),
    ("in 1999.\n2000. no list", [["p", "in 1999.", ["br"], "2000. no list"]]),
    ("> a\n> > b\nlazy", [["blockquote", ["p", "a"], ["blockquote", ["p", "b", ["br"], "lazy"]]]]),
    ("a\n\n---\n\nb", [["p", "a"], ["hr"], ["p", "b"]]),
    ("```py\nx = 1\n\n  y\n```\nz", [["pre", "py", "x = 1\n\n  y"], ["p", "z"]]),
    ("~~~\n```\n~~~", [["pre", "text", "```"]]),
    ("```\nopen", [["pre", "text", "open"]]),
    (
        "- a\n  ```sh\n  b\n  ```",
        [["ul", ["li", "a", ["div", ["div", ["span", "sh"]], ["pre", ["code", "b"]]]]]],
    ),
    (
        "| a | b |\n|---|:-:|\n| `x|y` | \\| |\n| 1 |",
        [
            [
                "table",
                ["thead", ["tr", ["th", "a"], ["th", "b"]]],
                [
                    "tbody",
                    ["tr", ["td", ["code", "x|y"]], ["td", "|"]],
                    ["tr", ["td", "1"], ["td"]],
                ],
            ]
        ],
    ),
    ("a | b\nno divider", [["p", "a | b", ["br"], "no divider"]]),
    ("It costs $5 and $10, or $5-$10.", [["p", "It costs $5 and $10, or $5-$10."]]),
    ("$$\nnever ended\n\nb", [["p", "$$", ["br"], "never ended"], ["p", "b"]]),
    ("a $x$ b", [["p", "a ", ["math", ["mi", "x"]], " b"]]),
    ("a \\(x\\) b \\( c", [["p", "a ", ["math", ["mi", "x"]], " b ( c"]]),
    ("$\\unknown$", [["p", ["code", "\\unknown"]]]),
    ("$$\nx\n$$\ny", [["div", ["math", ["mi", "x"]]], ["p", "y"]]),
    ("\\[x\\]", [["div", ["math", ["mi", "x"]]]]),
    ("$$x$$ and", [["p", ["math", ["mi", "x"]], " and"]]),
    ("<div>\n<b>x</b>", [["p", "<div>", ["br"], "<b>x</b>"]]),
]


def without_buttons(node: object) -> object:
    if isinstance(node, list):
        return [
            without_buttons(part)
            for part in node
            if not (isinstance(part, list) and part[0] == "button")
        ]
    return node


@pytest.fixture(scope="module")
def blank(browser: Browser) -> Iterator[Page]:
    """The page, for scripts of its own."""
    server = FakeServer()
    page = browser.new_page()
    page.goto(server.url)
    yield page
    page.close()
    server.stop()


@pytest.mark.parametrize(("text", "expected"), CASES, ids=[repr(text) for text, _ in CASES])
def test_a_text_becomes_nodes(blank: Page, text: str, expected: list[object]) -> None:
    assert without_buttons(blank.evaluate(SHOW, text)) == expected


@pytest.mark.parametrize("size", [1, 3, 7, 50])
@pytest.mark.parametrize("text", [RICH, HOSTILE, "\n\n".join(text for text, _ in CASES)])
def test_a_stream_ends_like_the_whole_text(blank: Page, text: str, size: int) -> None:
    assert blank.evaluate(STREAM, [text, size]) == blank.evaluate(SHOW, text)


@pytest.mark.parametrize(
    "unit",
    ["[", "*", "**a ", "`", "> ", "- ", "![", "_a", "<", "|", "\\", "#", "$", "$$", "\\(", "$a $"],
)
def test_odd_texts_come_to_an_end(blank: Page, unit: str) -> None:
    assert blank.evaluate(REPEAT, unit * 20_000).endswith("x")
