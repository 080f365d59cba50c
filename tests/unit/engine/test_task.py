"""Tasks of other kinds run in the same steps as texts: the step knows only their protocol."""

import numpy as np
import pytest

from ingot import LLM, SamplingParams
from ingot.arrays import Ints
from ingot.engine.channel import Channel
from ingot.engine.sequence import TokenSequence
from ingot.engine.task import Outcome, Task, TokenWanted
from ingot.sampling import ChainBuilder, SampledToken, TokenSampler

PATIENCE = 60  # seconds


class TokensTask(Task):
    """Samples some tokens after a prompt, without text."""

    def __init__(self, llm: LLM, prompt: Ints, count: int) -> None:
        self.channel: Channel[list[int]] = Channel()
        self.sequences = [TokenSequence(prompt)]
        chain = ChainBuilder(llm.tokenizer).build(SamplingParams(temperature=0), prompt)
        self._sampler = TokenSampler(chain)
        self._count = count
        self.tokens: list[int] = []
        self.outcomes: list[Outcome] = []

    def receive(self, outcome: Outcome) -> TokenWanted | None:
        self.outcomes.append(outcome)
        if not self.is_ready:
            return None
        ((_, _, logits),) = outcome.rows
        return TokenWanted(self._sampler, logits)

    def take(self, token: SampledToken) -> None:
        self.tokens.append(token.token)
        if len(self.tokens) == self._count:
            self.channel.finish(self.tokens)
        else:
            self.sequences[0].extend([token.token])


class BrokenTask(TokensTask):
    """Fails with the outcome of its third step."""

    def receive(self, outcome: Outcome) -> TokenWanted | None:
        if len(self.outcomes) == 2:
            raise ZeroDivisionError
        return super().receive(outcome)


@pytest.fixture
def prompt(llm: LLM) -> Ints:
    return llm.engine.encode(np.arange(200))


def test_a_task_of_another_kind(llm: LLM, prompt: Ints) -> None:
    expected = llm.generate(prompt, temperature=0, max_tokens=12, ignore_eos=True).token_ids
    beside = llm.stream(prompt[:9], temperature=0, max_tokens=40, ignore_eos=True)
    next(beside)
    task = TokensTask(llm, prompt, 12)
    llm.engine._loop.submit(task)
    assert tuple(task.channel.result(PATIENCE)) == expected
    assert [len(outcome.rows) for outcome in task.outcomes[-12:]] == [1] * 12
    assert len(beside.result(PATIENCE).token_ids) == 40
    assert llm.stats.blocks_held == 0


def test_an_error_in_a_task_ends_only_that(llm: LLM, prompt: Ints) -> None:
    tasks = [BrokenTask(llm, prompt[:20], 12), TokensTask(llm, prompt[20:50], 12)]
    for task in tasks:
        llm.engine._loop.submit(task)
    with pytest.raises(ZeroDivisionError):
        tasks[0].channel.result(PATIENCE)
    assert len(tasks[1].channel.result(PATIENCE)) == 12
    assert len(tasks[0].tokens) == 2
    assert llm.stats.blocks_held == 0
