"""Write the table of docs/models.md: every architecture, and how near it is to its oracle.

    PYTHONPATH=tests python docs/make_models_table.py

Runs the tiny models of tests/models on the CPU and compares every logit (of an encoder: every
hidden element; of a reranker: every score) with what `transformers` computed. The text around the
table stays as it is.
"""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import ingot.models
from ingot.gguf import GgufLoader
from ingot.models import architectures, build_graph, described, module_name
from models.recipes import RECIPES
from models.text_runner import TextRunner
from models.tiny_models import PAIR_LENGTHS, PROMPT, Fixture, pair_types
from run_batches import Runner

PAGE = Path(__file__).with_name("models.md")
BEGIN, END = "<!-- table: make_models_table.py -->\n", "<!-- end of table -->\n"
CONTEXT = 96


def difference(name: str) -> float:
    """The largest one of a recipe's model."""
    fixture = Fixture.load(name)
    with (
        TemporaryDirectory() as folder,
        GgufLoader(fixture.write(Path(folder) / "model.gguf")) as model,
    ):
        graph = build_graph(model, CONTEXT)
        if RECIPES[name].encoder_decoder:
            ids = fixture.token_ids
            rows = TextRunner(graph, model).text(ids[:PROMPT], ids[PROMPT:])
            return float(np.abs(rows - fixture.logits).max())
        runner = Runner(graph, model, positions=CONTEXT, sequences=3)
        if RECIPES[name].ranker:
            pairs = {length: fixture.token_ids[:length] for length in PAIR_LENGTHS}
            types = [kind for length in PAIR_LENGTHS for kind in pair_types(length)]
            found = runner.step(pairs, types=types if graph.token_types > 1 else None).values()
            rows = np.array([row[-1 if graph.causal else 0] for row in found])
        else:
            rows = runner.run(fixture.token_ids)
    return float(np.abs(rows - fixture.logits).max())


def measured() -> dict[str, str]:
    """The largest difference of each architecture, in words."""
    found = dict.fromkeys(architectures(), 0.0)
    for name, recipe in RECIPES.items():
        found[recipe.architecture] = max(found[recipe.architecture], difference(name))
    return {name: f"{worst:.0e}" for name, worst in found.items()}


def table(differences: Mapping[str, str]) -> str:
    """The lines of the table."""
    folder = Path(ingot.models.__file__).parent
    lines = [
        "| architecture | what is special | lines | tested against | differs by at most |",
        "|---|---|---|---|---|",
    ]
    for name in architectures():
        file = folder / f"{module_name(name)}.py"
        length = len(file.read_text().splitlines())
        recipes = [recipe for recipe in RECIPES.values() if recipe.architecture == name]
        classes = ", ".join(dict.fromkeys(f"`{recipe.model}`" for recipe in recipes))
        models = f"{classes}; {len(recipes)} tiny model{'s' if len(recipes) > 1 else ''}"
        lines.append(
            f"| `{name}` | {described(name)} | {length} | {models} | {differences[name]} |"
        )
    return "\n".join(lines) + "\n"


def page(text: str, differences: Mapping[str, str]) -> str:
    """The page with a new table."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + table(differences) + END + after


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(), measured()))
