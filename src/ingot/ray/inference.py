"""batch_inference: a model over the rows of a Ray dataset.

Rows come in, the same rows in the same order with the columns `answer` and `error` go out; one of
both is null. Ray Data places the workers, feeds them at their pace, and starts a killed one again
with the rows that it had not answered. Rows go through the endpoints of the server, as those of
`ingot batch` do.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from ray.data import ActorPoolStrategy

from ingot.errors import ConfigError
from ingot.ray.cores import claim
from ingot.ray.models import located, named, unlocated
from ingot.ray.scale import FOR_SERVERS, Scale, engine_of, fitted
from ingot.server.batches.offline import asking
from ingot.server.batches.requests import Answer, BatchRequest
from ingot.server.batches.run import answer_all
from ingot.server.options import ServerOptions

if TYPE_CHECKING:
    from ray.data import Dataset

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
EMBEDDINGS, SCORE = "/v1/embeddings", "/v1/score"
_PATHS = (CHAT, COMPLETIONS, EMBEDDINGS, SCORE)
Row = Mapping[str, Any]
# A text with names of columns in braces, or a function of a row that makes a text, for chats also
# messages, and for scores the two texts to compare.
Prompt = str | Callable[[Row], str | Sequence[Mapping[str, Any]] | Sequence[str]]


def batch_inference(
    dataset: "Dataset",
    *,
    model: str,
    prompt: Prompt,
    schema: Mapping[str, Any] | None = None,
    params: Mapping[str, Any] | None = None,
    engine: Mapping[str, Any] | None = None,
    scale: Scale | None = None,
    path: str = CHAT,
    batch_size: int = 64,
) -> "Dataset":
    """The dataset with the columns `answer` and `error`, in the order of the rows.

    `model` is `[NAME=]MODEL`, `params` are fields of a chat request, `engine` fields of
    `EngineOptions`. With a JSON schema, answers follow it. `path` is the endpoint: that of chats,
    completions, embeddings or scores. Of `scale`, the fields about the load of a server are
    refused: Ray Data adds workers up to `max_replicas` by the rows that wait.
    """
    found = scale or Scale()
    found.refuse(FOR_SERVERS, "Ray Data adds workers by the rows that wait")
    return _in_order(dataset).map_batches(
        Inference,
        fn_constructor_kwargs={
            "model": model,
            "prompt": prompt,
            "schema": schema,
            "params": params,
            "engine": engine,
            "scale": found,
            "path": path,
        },
        compute=ActorPoolStrategy(
            min_size=found.replicas, max_size=found.max_replicas or found.replicas
        ),
        num_cpus=found.cpus,
        num_gpus=found.gpus,
        batch_size=batch_size,
    )


def _in_order(dataset: "Dataset") -> "Dataset":
    """A dataset that keeps its order when it is executed; the one that was given stays as it is."""
    ordered = dataset.copy(dataset, _deep_copy=True)  # with settings of its own
    ordered.context.execution_options.preserve_order = True
    return ordered


class Inference:
    """A model for `Dataset.map_batches`; each worker of Ray makes one."""

    def __init__(
        self,
        *,
        model: str,
        prompt: Prompt,
        schema: Mapping[str, Any] | None = None,
        params: Mapping[str, Any] | None = None,
        engine: Mapping[str, Any] | None = None,
        scale: Scale | None = None,
        path: str = CHAT,
    ) -> None:
        """`path` of the endpoint: chats, completions, embeddings or scores."""
        if path not in _PATHS:
            raise ConfigError(f"path is {path!r}; it must be one of {', '.join(_PATHS)}")
        self._prompt = prompt
        self._path = path
        self._fields = dict(params or {})
        if schema is not None:
            described = {"name": "answer", "schema": dict(schema), "strict": True}
            self._fields["response_format"] = {"type": "json_schema", "json_schema": described}
        found = scale or Scale()
        if found.pinned is not None:
            self._cores = claim(found.pinned)
            self._cores.keep_to()
        sources = dict([named(model)])
        models = unlocated(sources, engine_of(engine or {}, found))
        server = ServerOptions(models=models, access_log=False)
        self._runner = asyncio.Runner()
        self._open = asking(located(fitted(server, found), sources))
        self._ask, self._at_once = self._runner.run(self._open.__aenter__())

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """The batch with answers."""
        names = list(batch)
        rows = [
            dict(zip(names, values, strict=True)) for values in zip(*batch.values(), strict=True)
        ]
        answers: dict[int, str | float | list[float] | None] = {}
        errors: dict[int, str | None] = {}

        def keep(number: int, answer: Answer) -> None:
            answers[number], errors[number] = self._result(answer)

        requests = []
        for number, row in enumerate(rows):
            try:
                requests.append((number, BatchRequest(str(number), self._path, self._body(row))))
            except Exception as error:  # of the user's function, or a column that is missing
                answers[number], errors[number] = None, f"{type(error).__name__}: {error}"
        self._runner.run(answer_all(self._ask, requests, keep, self._at_once))
        return {**batch, "answer": _column(answers), "error": _column(errors)}

    def close(self) -> None:
        """Close the model. A worker of Ray ends with its process, and need not."""
        with self._runner as runner:
            runner.run(self._open.__aexit__(None, None, None))

    def _body(self, row: Row) -> dict[str, Any]:
        given = self._prompt.format_map(row) if isinstance(self._prompt, str) else self._prompt(row)
        return {**self._fields, **self._asked(given)}

    def _asked(self, given: Any) -> dict[str, Any]:
        """The fields of a request that a prompt becomes."""
        if self._path == EMBEDDINGS:
            return {"input": given}
        if self._path == COMPLETIONS:
            return {"prompt": given}
        if self._path == SCORE:
            first, second = given
            return {"text_1": first, "text_2": second}
        messages = [{"role": "user", "content": given}] if isinstance(given, str) else list(given)
        return {"messages": messages}

    def _result(self, answer: Answer) -> tuple[str | float | list[float] | None, str | None]:
        """The text of an answer, an embedding or a score; and what is wrong."""
        if not answer.is_success:
            return None, str(answer.body["error"]["message"])
        if self._path in (EMBEDDINGS, SCORE):
            (found,) = answer.body["data"]
            return found["embedding" if self._path == EMBEDDINGS else "score"], None
        choice = answer.body["choices"][0]
        return choice["text"] if self._path == COMPLETIONS else choice["message"]["content"], None


def _column(values: Mapping[int, Any]) -> Any:
    """The values in the order of the rows."""
    column = np.empty(len(values), dtype=object)
    for number, value in values.items():
        column[number] = value
    return column
