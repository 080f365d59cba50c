"""Formulas and diagrams in a browser: what sources become, and what stays a source."""

import pytest

pytest.importorskip("playwright", reason="Playwright is not here: pip install playwright==1.65.0")

from collections.abc import Callable, Iterator

from fake_server import FakeServer
from playwright.sync_api import Browser, Page, expect
from steps import ask

pytestmark = pytest.mark.oracle

Shoot = Callable[[Page, str], None]

MATH = """async ([source, display]) => {
  const { mathNode } = await import(new URL("page/js/math/latex.js", location.origin));
  const plain = (node) => node.nodeType === 3 ? node.data
    : `${node.localName}(${[...node.childNodes].map(plain).join(" ")})`;
  const node = mathNode(source, display);
  return node && [...node.childNodes].map(plain).join(" ");
}"""
FORMULAS = [
    ("x^2", "msup(mi(x) mn(2))"),
    ("a_{ij}^{2}", "msubsup(mi(a) mrow(mi(i) mi(j)) mn(2))"),
    ("f'(x)", "msup(mi(f) mo(′)) mo(() mi(x) mo())"),
    (r"\frac{1}{2}", "mfrac(mn(1) mn(2))"),
    (r"\frac12", "mfrac(mn(1) mn(2))"),
    (r"\sqrt[3]{x}", "mroot(mi(x) mn(3))"),
    (r"\alpha \le \infty", "mi(α) mo(≤) mi(∞)"),
    (r"\sin x", "mi(sin) mi(x)"),
    (r"\left( \frac a b \right]", "mrow(mo(() mfrac(mi(a) mi(b)) mo(]))"),
    (r"\mathbb{R}^n", "msup(mi(ℝ) mi(n))"),
    (r"\text{if } x", "mtext(if\u00a0) mi(x)"),
    (r"\hat{y}", "mover(mi(y) mo(^))"),
    (
        r"\begin{pmatrix} a & b \\ c & d \end{pmatrix}",
        "mrow(mo(() mtable(mtr(mtd(mi(a)) mtd(mi(b))) mtr(mtd(mi(c)) mtd(mi(d)))) mo()))",
    ),
    (
        r"\begin{cases} 1 & x \\ 0 & y \\ \end{cases}",
        "mrow(mo({) mtable(mtr(mtd(mn(1)) mtd(mi(x))) mtr(mtd(mn(0)) mtd(mi(y)))))",
    ),
    (r"a \; b % comment", "mi(a) mspace() mi(b)"),
    ("3.14", "mn(3.14)"),
]


@pytest.fixture(scope="module")
def blank(browser: Browser) -> Iterator[Page]:
    """The page, for scripts of its own."""
    server = FakeServer()
    page = browser.new_page()
    page.goto(server.url)
    yield page
    page.close()
    server.stop()


@pytest.mark.parametrize(("source", "expected"), FORMULAS, ids=[source for source, _ in FORMULAS])
def test_a_formula_becomes_mathml(blank: Page, source: str, expected: str) -> None:
    assert blank.evaluate(MATH, [source, False]) == expected


def test_limits_go_above_and_below_in_a_formula_of_its_own(blank: Page) -> None:
    source = r"\sum_{i=1}^n i"
    parts = "mo(∑) mrow(mi(i) mo(=) mn(1)) mi(n)"
    assert blank.evaluate(MATH, [source, True]) == f"munderover({parts}) mi(i)"
    assert blank.evaluate(MATH, [source, False]) == f"msubsup({parts}) mi(i)"


@pytest.mark.parametrize(
    "source",
    [
        r"\unknown",
        r"\frac{1}",
        "{",
        "}",
        r"\left( x",
        r"\begin{what} \end{what}",
        "a & b",
        r"\begin{matrix} a",
        r"\right)",
        "x" * 6000,
        "{" * 200 + "}" * 200,
    ],
)
def test_what_is_not_known_is_no_formula(blank: Page, source: str) -> None:
    assert blank.evaluate(MATH, [source, False]) is None


DIAGRAM = """async (source) => {
  const { diagramOf } = await import(new URL("page/js/diagrams/mermaid.js", location.origin));
  const picture = diagramOf(source);
  if (!picture) return null;
  const texts = (kind) => [...picture.querySelectorAll(kind + " text")]
    .map((text) => [...text.children].map((line) => line.textContent).join(" "));
  document.body.append(picture);
  const box = (node) => {
    const { x, y, width, height } = node.getBBox();
    return [x, y, x + width, y + height];
  };
  const boxes = [...picture.querySelectorAll(".diagram-node")].map(box);
  const view = picture.viewBox.baseVal;
  const found = {
    nodes: texts(".diagram-node"), labels: texts(".diagram-label"), notes: texts(".diagram-note"),
    heads: picture.querySelectorAll(".diagram-head").length,
    lines: picture.querySelectorAll(".diagram-line").length,
    label: picture.getAttribute("aria-label"), boxes, view: [view.width, view.height],
  };
  picture.remove();
  return found;
}"""


def apart(boxes: list[list[float]]) -> bool:
    """Whether no box covers another."""
    return not any(
        one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
        for at, one in enumerate(boxes)
        for other in boxes[:at]
    )


@pytest.mark.parametrize("direction", ["TD", "LR", "BT", "RL"])
def test_a_flowchart_is_drawn(blank: Page, direction: str) -> None:
    source = f"""flowchart {direction}
    A[Start] --> B{{Is it "right"?}}
    B -->|Yes| C(Done)
    B -- No --> D[["Try<br/>again"]]
    D -.-> B & A
    C ==> E((End)); E --- E
    style A fill:#f9f
    %% a comment
    """
    found = blank.evaluate(DIAGRAM, source)
    assert found["nodes"] == ["Start", 'Is it "right"?', "Done", "Try again", "End"]
    assert found["labels"] == ["Yes", "No"]
    assert (found["lines"], found["heads"]) == (7, 6)
    assert apart(found["boxes"])
    width, height = found["view"]
    assert all(
        box[0] >= 0 and box[1] >= 0 and box[2] <= width and box[3] <= height
        for box in found["boxes"]
    )
    first, last = found["boxes"][0], found["boxes"][4]
    axis = 0 if direction in ("LR", "RL") else 1
    assert (last[axis] > first[axis]) == (direction in ("TD", "LR"))


def test_a_sequence_diagram_is_drawn(blank: Page) -> None:
    source = """sequenceDiagram
    autonumber
    participant A as Alice
    actor B
    A->>+B: Hello, how are you?
    B-->>-A: Great!
    alt is well
      B->>B: thinks
    else is sick
      Note over A,B: A long<br/>note
    end
    A-)C: Bye
    """
    found = blank.evaluate(DIAGRAM, source)
    assert found["nodes"] == ["Alice", "B", "C"]
    assert found["notes"] == ["A long note"]
    assert (found["lines"], found["heads"]) == (4, 4)
    assert found["label"] == "Sequence diagram: Alice, B, C"
    assert apart(found["boxes"])


@pytest.mark.parametrize(
    "source",
    [
        "",
        'pie\n  "a": 1',
        "graph TD\n  subgraph x\n  A --> B\n  end",
        "graph TD\n  A --> ",
        "graph TD\n  A[open",
        "graph TD",
        "sequenceDiagram\n  A says B",
        "sequenceDiagram\n  loop x",
        "graph TD\n" + "\n".join(f"a{n} --> b{n}" for n in range(200)),
        "x" * 30_000,
    ],
)
def test_other_diagrams_stay_sources(blank: Page, source: str) -> None:
    assert blank.evaluate(DIAGRAM, source) is None


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_formulas_and_diagrams_in_an_answer(
    visit: Callable[..., Page], fake: FakeServer, shoot: Shoot, scheme: str
) -> None:
    page = visit(fake.url, color_scheme=scheme, viewport={"width": 1100, "height": 1500})
    ask(page, "Draw some figures")
    expect(page.locator(".answer math")).to_have_count(6)
    expect(page.locator(".diagram:visible")).to_have_count(2)
    expect(page.locator(".code-block pre:visible")).to_have_count(1)  # what cannot be drawn
    page.evaluate("document.querySelector('#scroll').scrollTop = 0")
    shoot(page, f"figures-{scheme}")
    figure = page.locator(".code-block").first
    figure.get_by_role("button", name="Source").click()
    expect(figure.locator("pre")).to_contain_text("flowchart TD")
    figure.get_by_role("button", name="Diagram").click()
    expect(figure.locator(".diagram")).to_be_visible()
