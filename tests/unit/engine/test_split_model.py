"""The engine over a model in two parts: shared, forked, saved and restored texts are the same."""

from pathlib import Path
from typing import Any

import pytest

from ingot.api import LLM
from ingot.backends.split import PartLayout, SplitBackend
from ingot.engine.model import loaded_model
from ingot.engine.model.placement import Placed
from ingot.graph.cut import cut_all, layer_count
from models.tiny_models import Fixture

GREEDY: dict[str, Any] = {"max_tokens": 12, "temperature": 0}


class PlacedApart(Placed):
    """The first layer on a CPU backend of its own, and so is the second one if there are more."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        parts: list[Any] = []
        places = [1, 2] if layer_count(self._graph) > 2 else [1]
        for graph in cut_all(self._graph, places):
            layout = PartLayout.of(graph, self._layout)
            parts.append((self._on_cpu(graph, layout.own, self.size), layout))
        self.backend = SplitBackend(parts)


@pytest.mark.parametrize("name", ["gemma2", "mamba2", "falcon-h1", "qwen35", "deepseek2"])
def test_texts(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows that begin in either part; states. A saved text is the same file, and for both.

    Not to the last byte where there are states: nobody writes what fills them up.
    """
    fixture = Fixture.load(name)
    path, ids = fixture.write(tmp_path / "m.gguf"), fixture.token_ids
    with LLM(path, context=128) as whole:
        expected = whole.generate(ids, **GREEDY).token_ids
        whole.engine.save(ids, tmp_path / "whole")
    monkeypatch.setattr(loaded_model, "Placed", PlacedApart)
    with LLM(path, context=128) as apart:
        assert apart.generate(ids, **GREEDY).token_ids == expected
        assert apart.generate(ids, **GREEDY).token_ids == expected
        assert apart.engine.stats.reused_tokens > 0
        request = apart.stream(ids, **GREEDY)
        next(request)
        fork = request.fork()
        assert request.result().token_ids == fork.result().token_ids == expected
        apart.engine.save(ids, tmp_path / "apart")
    sizes = {(tmp_path / file).stat().st_size for file in ("apart", "whole")}
    assert len(sizes) == 1
    if name == "gemma2":
        assert (tmp_path / "apart").read_bytes() == (tmp_path / "whole").read_bytes()
    with LLM(path, context=128) as apart:
        assert len(apart.engine.restore(tmp_path / "whole")) > 0
        assert apart.generate(ids, **GREEDY).token_ids == expected
        assert apart.engine.stats.reused_tokens > 0
