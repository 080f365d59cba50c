"""An architecture is one file: the example of CONTRIBUTING.md, under another name."""

from pathlib import Path

from contributing.changed_tree import ChangedTree, recipe

RUN = """
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from ingot.gguf import GgufLoader
from ingot.models import architectures, build_graph, described
from models.tiny_models import Fixture
from run_batches import Runner

assert "throw-away" in architectures()
assert described("throw-away").startswith("Qwen 3: ")
fixture = replace(Fixture.load("qwen3"), architecture="throw-away")
path = fixture.write(Path(sys.argv[1]) / "model.gguf")
with GgufLoader(path) as model:
    logits = Runner(build_graph(model), model).run(fixture.token_ids)
np.testing.assert_allclose(logits, fixture.logits, atol=1e-3)  # what transformers computed
"""


def test_an_architecture_is_one_file(tmp_path: Path) -> None:
    tree = ChangedTree(tmp_path)
    change = tree.follow("Add an architecture")
    _, _, rest = recipe("Add an architecture").partition("```python\n")
    change.add("src/ingot/models/throw_away.py", rest.partition("```\n")[0])
    tree.use_native()
    tree.run(RUN, tmp_path)
    assert len(change.files) == 1
