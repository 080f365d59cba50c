"""Pairs for a reranker: a query and a document as the tokens of one text.

    before query after  [separator]  document after

`before` and `after` are the tokens that the vocabulary puts around every text; some files ask for
one more as a separator. Tokens of the query have type 0, those of the document type 1 if the model
distinguishes types.
"""

import numpy as np

from ingot.arrays import Ints
from ingot.engine.model.loaded_model import LoadedModel
from ingot.errors import ContextLengthError, ModelError, TokenizerError
from ingot.tokenizer import Tokenizer

_ADD_SEPARATOR = "tokenizer.ggml.add_sep_token"
_SEPARATOR = "tokenizer.ggml.seperator_token_id"  # the format's own spelling


class PairEncoder:
    """Encodes queries and documents."""

    def __init__(self, model: LoadedModel, tokenizer: Tokenizer) -> None:
        graph = model.graph
        if not graph.scores or graph.logits.width != 1:
            has = f"has a head of {graph.logits.width} outputs" if graph.scores else "has no head"
            raise ModelError(
                f"{model.file.path} {has} that scores texts for a query (cls, cls.output); "
                "to compare texts by what they mean, use embed"
            )
        self._document_type = 1 if graph.token_types > 1 else 0
        self._context = model.context
        self._tokenizer = tokenizer
        self._start = [tokenizer.bos_id] if tokenizer.adds_bos else []
        self._between: list[int] = []
        metadata = model.file.metadata
        if metadata.boolean(_ADD_SEPARATOR, False):
            separator = metadata.integer(_SEPARATOR, tokenizer.eos_id)
            if separator is None:
                raise TokenizerError(
                    f"the file asks for a separator between pairs, but has no {_SEPARATOR}"
                )
            self._between = [separator]

    def encode(self, query: str, document: str) -> tuple[Ints, Ints]:
        """The tokens of a pair and their types."""
        first = [*self._tokenizer.encode(query), *self._between]
        second = self._tokenizer.encode(document)[len(self._start) :]
        if len(first) + len(second) > self._context:
            raise ContextLengthError(
                f"a query of {len(first)} tokens and a document of {len(second)} do not fit the "
                f"context of {self._context}; cut the document into shorter ones"
            )
        types = np.repeat([0, self._document_type], [len(first), len(second)])
        return np.array(first + second, np.int32), types.astype(np.int32)
