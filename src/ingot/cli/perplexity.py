"""`ingot perplexity`: how surprised a model is by a text."""

import math
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from ingot.api import LLM
from ingot.cli.models import ModelOption, locate
from ingot.cli.text import notice
from ingot.errors import ConfigError


def command(
    text: Annotated[Path, typer.Argument(metavar="TEXTFILE", help="A text file, UTF-8.")],
    *,
    model: ModelOption = None,
    context: Annotated[int, typer.Option("-c", "--context", help="Tokens of a chunk.")] = 512,
    threads: Annotated[int | None, typer.Option("-t", "--threads", help="CPU threads.")] = None,
) -> None:
    """Print the perplexity of a text: exp of the mean negative log-likelihood of its tokens.

    The text is cut into chunks of `context` tokens; the second half of each is scored, so
    that every scored token has at least half a chunk before it.
    """
    with LLM(locate(model), threads=threads, context=context) as llm:
        ids = llm.tokenizer.encode(text.read_bytes())
        chunks = len(ids) // context
        if context < 4 or chunks == 0:
            raise ConfigError(
                f"the text has {len(ids)} tokens; a chunk has {context} and needs at least 4"
            )
        total, scored = 0.0, 0
        for index in range(chunks):
            chunk = ids[index * context : (index + 1) * context]
            logits = llm.logits(chunk)[context // 2 - 1 : -1].astype(np.float64)
            targets = np.array(chunk[context // 2 :])
            top = logits.max(axis=-1)
            log_sum = top + np.log(np.exp(logits - top[:, None]).sum(axis=-1))
            total += float((log_sum - logits[np.arange(len(targets)), targets]).sum())
            scored += len(targets)
            notice(f"chunk {index + 1} of {chunks}: {math.exp(total / scored):.4f}")
        print(f"{math.exp(total / scored):.4f}")
