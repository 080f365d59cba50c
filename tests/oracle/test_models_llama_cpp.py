"""Whole models against llama.cpp: the same tiny files, the same tokens, the same rows.

Float32 files and caches on both sides. llama.cpp looks GELU up in a table of half floats and has
its tanh approximation where a model means the exact one; so its rows are about 1e-3 away there.
"""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from ingot.gguf import GgufLoader
from ingot.models import build_graph
from models.recipes import RECIPES
from models.text_runner import TextRunner
from models.tiny_models import PROMPT, Fixture
from run_batches import Runner

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.skipif(
        find_spec("llama_cpp") is None, reason="no peer: pip install llama-cpp-python==0.3.36"
    ),
]

WORKER = Path(__file__).with_name("llama_cpp_logits_worker.py")
CONTEXT = 256  # llama.cpp rounds shorter ones up to this
BOUND = 1e-2
# How many tokens to compare where the peer does something else afterwards.
TOKENS = {"phi3": 23}  # it ignores this architecture's window


# Of all logits: it leaves this out, as docs/models.md says.
FACTORS = {"t5-tied": 64**-0.5}


def log_softmax(rows: NDArray[np.float32]) -> NDArray[np.float64]:
    wide = rows.astype(np.float64)
    wide -= wide.max(axis=1, keepdims=True)
    return wide - np.log(np.exp(wide).sum(axis=1, keepdims=True))


# Where the peer computes another network (docs/models.md says how).
DIFFERENT = {
    "deepseek2",
    "ernie4_5-moe-alternating",
    "exaone4-window",
    "gemma3n",
    "gpt-oss",
    "gptj",
    "minicpm-old",
    "phimoe",
    "phimoe-short",
    "smallthinker-window",
    "t5-deep",
}


@pytest.mark.parametrize("name", sorted(RECIPES.keys() - DIFFERENT))
def test_llama_cpp_computes_the_same(name: str, tmp_path: Path) -> None:
    fixture, recipe = Fixture.load(name), RECIPES[name]
    want = "score" if recipe.ranker else "hidden" if recipe.encoder else "logits"
    ids = fixture.token_ids[: TOKENS.get(name)]
    path = fixture.write(tmp_path / "model.gguf")
    job = {
        "model": str(path),
        "ids": ids,
        "context": CONTEXT,
        "want": want,
        "width": fixture.logits.shape[1],
        "prompt": PROMPT if recipe.encoder_decoder else len(ids) if recipe.encoder else 0,
        "out": str(tmp_path / "rows.npy"),
    }
    (tmp_path / "jobs.json").write_text(json.dumps([job]))
    subprocess.run([sys.executable, WORKER, tmp_path / "jobs.json"], check=True)
    assert (tmp_path / "rows.npy").exists(), "llama.cpp does not take the file"
    theirs = np.load(tmp_path / "rows.npy") * FACTORS.get(name, 1.0)
    with GgufLoader(path) as model:
        graph = build_graph(model, CONTEXT)
        if recipe.encoder_decoder:
            ours = TextRunner(graph, model).text(ids[:PROMPT], ids[PROMPT:])
        else:
            ours = Runner(graph, model, positions=CONTEXT).run(ids)
    if want == "score" and graph.causal:
        ours = np.exp(log_softmax(ours[-1:]))
    elif want == "score":
        ours = ours[:1]  # of the first token, all tokens being of the first type, as over there
    if want != "logits":
        assert np.abs(ours - theirs).max() <= BOUND
        return
    # Where the best two are nearer to each other than the bound, either may be first.
    places = np.arange(len(ours))
    near = ours.max(axis=1) - ours[places, theirs.argmax(axis=1)]
    assert near.max() <= BOUND
    assert np.abs(log_softmax(ours) - log_softmax(theirs)).max() <= BOUND
