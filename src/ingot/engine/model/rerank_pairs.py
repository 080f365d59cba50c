"""Pairs for a reranker: a query and a document as the tokens of one text, and scores of these.

    before query after  [separator]  document after

`before` and `after` are the tokens that the vocabulary puts around every text; some files ask for
one more as a separator. Tokens of the query have type 0, those of the document type 1 if the model
distinguishes types.

If the file has a template for pairs, the text is the template with query and document filled in;
these never become special tokens.
"""

import re

import numpy as np

from ingot.arrays import Floats, Ints
from ingot.engine.model.loaded_model import LoadedModel
from ingot.errors import ContextLengthError, ModelError, TokenizerError
from ingot.gguf import Metadata
from ingot.tokenizer import Tokenizer

_ADD_SEPARATOR = "tokenizer.ggml.add_sep_token"
_SEPARATOR = "tokenizer.ggml.seperator_token_id"  # the format's own spelling
_TEMPLATE = "tokenizer.chat_template.rerank"
_PLACES = re.compile(r"\{(query|document)\}")
_YES_OR_NO = ("yes", "no")


class PairEncoder:
    """Encodes queries and documents."""

    def __init__(self, model: LoadedModel, tokenizer: Tokenizer) -> None:
        graph, metadata = model.graph, model.file.metadata
        self._answers = graph.logits.width == 2 and _labels(metadata) == _YES_OR_NO
        if not graph.scores or not (self._answers or graph.logits.width == 1):
            has = f"has a head of {graph.logits.width} outputs" if graph.scores else "has no head"
            raise ModelError(
                f"{model.file.path} {has} that scores texts for a query (cls, cls.output); "
                "to compare texts by what they mean, use embed"
            )
        self._document_type = 1 if graph.token_types > 1 else 0
        self._context = model.context
        self._tokenizer = tokenizer
        self._start = [tokenizer.bos_id] if tokenizer.adds_bos else []
        self._end = len(tokenizer.encode("")) - len(self._start)  # tokens after every text
        self._between: list[int] = []
        self._template = metadata.string(_TEMPLATE, "")
        if self._template and set(_PLACES.findall(self._template)) != {"query", "document"}:
            raise ModelError(f"{_TEMPLATE} must have places for {{query}} and {{document}}")
        if metadata.boolean(_ADD_SEPARATOR, False):
            separator = metadata.integer(_SEPARATOR, tokenizer.eos_id)
            if separator is None:
                raise TokenizerError(
                    f"the file asks for a separator between pairs, but has no {_SEPARATOR}"
                )
            self._between = [separator]

    def encode(self, query: str, document: str, most: int | None = None) -> tuple[Ints, Ints]:
        """The tokens of a pair and their types.

        A pair of more than `most` tokens loses the end of its longer text, as in transformers
        ("longest_first"); in a template, the end of the document.
        """
        if self._template:
            return self._fill_template(query, document, most)
        first = self._tokenizer.encode(query)
        second = self._tokenizer.encode(document)[len(self._start) :]
        if most is not None and len(first) + len(self._between) + len(second) > most:
            first, second = self._cut(first, second, most)
        first = [*first, *self._between]
        if len(first) + len(second) > self._context:
            raise ContextLengthError(
                f"a query of {len(first)} tokens and a document of {len(second)} do not fit the "
                f"context of {self._context}; cut the document into shorter ones"
            )
        types = np.repeat([0, self._document_type], [len(first), len(second)])
        return np.array(first + second, np.int32), types.astype(np.int32)

    def scores(self, outputs: Floats) -> Floats:
        """One number for each row that the head gives: itself, or the probability of a yes."""
        if not self._answers:
            return outputs[:, 0]
        yes, no = outputs.T
        probabilities: Floats = np.exp(-np.logaddexp(np.float32(0), no - yes))
        return probabilities

    def _cut(self, first: list[int], second: list[int], most: int) -> tuple[list[int], list[int]]:
        """The tokens of both texts, without the end of the longer one or of both."""
        start, end = len(self._start), self._end
        room = most - start - 2 * end - len(self._between)  # for the tokens of the texts
        if room < 2:
            raise _too_short(most)
        lengths = len(first) - start - end, len(second) - end
        shorter = min(*lengths, room // 2)
        kept = (shorter, room - shorter) if lengths[0] <= lengths[1] else (room - shorter, shorter)
        return (
            first[: start + kept[0]] + first[len(first) - end :],
            second[: kept[1]] + second[len(second) - end :],
        )

    def _fill_template(self, query: str, document: str, most: int | None) -> tuple[Ints, Ints]:
        tokens = self._filled(query, document)
        if most is not None and len(tokens) > most:
            kept = self._tokenizer.encode(document, add_special=False)
            while len(tokens) > most:
                if not kept:
                    raise _too_short(most)
                del kept[max(len(kept) - (len(tokens) - most), 0) :]
                tokens = self._filled(query, self._tokenizer.decode(kept))
        if len(tokens) > self._context:
            raise ContextLengthError(
                f"a query and a document of {len(tokens)} tokens with the file's template do not "
                f"fit the context of {self._context}; cut the document into shorter ones"
            )
        return np.array(tokens, np.int32), np.zeros(len(tokens), np.int32)

    def _filled(self, query: str, document: str) -> list[int]:
        """The tokens of the template with a query and a document."""
        text, spans = "", []
        given = {"query": query, "document": document}
        for index, part in enumerate(_PLACES.split(self._template)):
            if index % 2:  # what the expression found
                spans.append((len(text), len(text) + len(given[part])))
            text += given[part] if index % 2 else part
        return self._tokenizer.encode(
            text, add_special=False, parse_special=True, plain_spans=spans
        )


def _too_short(most: int) -> ContextLengthError:
    return ContextLengthError(
        f"a query and a document cannot be cut to {most} tokens; allow more for each pair"
    )


def _labels(metadata: Metadata) -> tuple[str, ...]:
    """What the outputs of a head mean."""
    key = f"{metadata.string('general.architecture')}.classifier.output_labels"
    return tuple(metadata.strings(key)) if key in metadata else ()
