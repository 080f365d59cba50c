"""The example in CONTRIBUTING.md is the file it shows."""

from pathlib import Path

import ingot.models

ROOT = Path(__file__).parents[2]


def test_the_example_of_an_architecture() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    _, _, rest = text.partition("`src/ingot/models/qwen3.py`, all of it:\n\n```python\n")
    shown, _, _ = rest.partition("```\n")
    assert shown == Path(ingot.models.__file__).with_name("qwen3.py").read_text()
    recipes = (ROOT / "tests" / "models" / "recipes_dense.py").read_text()
    _, _, rest = rest.partition("```python\n")
    assert rest.partition("```\n")[0] in recipes
