"""A bar chart as SVG, without any other program.

A title, lines of text and the shares to be drawn come in, the text of an .svg file goes out. Text
is monospace, so that its width is known before it is drawn.
"""

from collections.abc import Sequence
from html import escape

_CHARACTER = 6.7  # an advance of monospace at 11 pixels, rounded up
_LINE, _ROW, _BAR = 18, 24, 16  # pixels
_LEFT, _TOP = 24, 28
_LONGEST = 360  # of the bars
_STYLE = """
text { font: 11px monospace; fill: #1a1a1a; white-space: pre }
text.title { font-size: 14px; font-weight: bold }
rect.bar { fill: #3b6ea5 }
"""


def bars_svg(title: str, lines: Sequence[str], shares: Sequence[tuple[str, float]]) -> str:
    """The text of an .svg file: lines below the title, then a bar for each name and share."""
    first_bar = _TOP + (len(lines) + 1) * _LINE
    start = _LEFT + (max(len(name) for name, _ in shares) + 2) * _CHARACTER
    texts = [_LEFT + len(line) * _CHARACTER for line in lines]
    width = max(start + _LONGEST + 10 * _CHARACTER, _LEFT + len(title) * 9, *texts) + _LEFT
    height = first_bar + len(shares) * _ROW + _TOP - _BAR
    most = max(share for _, share in shares) or 1.0
    drawn = [_text(_LEFT, _TOP, title, ' class="title"')]
    drawn += [_text(_LEFT, _TOP + at * _LINE, line) for at, line in enumerate(lines, 1)]
    for number, (name, share) in enumerate(shares):
        top, length = first_bar + number * _ROW, _LONGEST * share / most
        base = top + _BAR - 4
        drawn += [
            _text(_LEFT, base, name),
            f'<rect class="bar" x="{start:.1f}" y="{top}" width="{length:.1f}" height="{_BAR}"/>',
            _text(start + length + _CHARACTER, base, f"{share:.1%}"),
        ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" '
            f'viewBox="0 0 {width:.0f} {height}">',
            f"<style>{_STYLE}</style>",
            '<rect width="100%" height="100%" fill="white"/>',
            *drawn,
            "</svg>",
            "",
        ]
    )


def _text(x: float, y: float, text: str, attributes: str = "") -> str:
    return f'<text{attributes} x="{x:.1f}" y="{y}">{escape(text)}</text>'
