"""From a `Grammar` to a matcher over a vocabulary, for any number of threads.

Comes in: a grammar in any of its languages. Goes out: it compiled, or a future of that. What
llguidance cannot enforce to the letter is refused with its reason, and so is what takes more time
or memory than the limits allow (limits.py). Grammars that take long never hold up the others: they
go on in a lane of their own. Nobody waits for a lock while one compiles.
"""

import os
import weakref
from collections import OrderedDict
from concurrent.futures import Future
from functools import partial
from threading import Lock

from ingot.errors import ModelError, QueueFullError
from ingot.sampling.grammar.lane import Compiled, Job, Lane
from ingot.sampling.grammar.limits import GrammarLimits
from ingot.sampling.grammar.spec import Grammar
from ingot.sampling.grammar.trial_process import TrialProcess
from ingot.sampling.grammar.vocabulary import GrammarVocabulary
from ingot.tokenizer import Tokenizer


class GrammarCompiler:
    """Compiles grammars for one vocabulary and keeps what it compiled."""

    def __init__(self, tokenizer: Tokenizer, limits: GrammarLimits | None = None) -> None:
        self.vocabulary = GrammarVocabulary(tokenizer)
        self._limits = limits = limits or GrammarLimits()
        slow = Lane(self.vocabulary, self._trial(limits.seconds))
        self._lanes = (Lane(self.vocabulary, self._trial(limits.quick_seconds), slow), slow)
        self._lock = Lock()  # of the next four
        self._kept: OrderedDict[Grammar, Compiled] = OrderedDict()
        self._used: weakref.WeakValueDictionary[Grammar, Compiled] = weakref.WeakValueDictionary()
        self._jobs: dict[Grammar, Job] = {}
        self._closed = False
        self._owner = os.getpid()
        self._stop = weakref.finalize(self, _close, self._lanes)

    def wait(self, grammar: Grammar) -> Compiled:
        """Wait for a grammar; whoever is interrupted waits no more."""
        future = self.compile(grammar)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def compile(self, grammar: Grammar) -> Future[Compiled]:
        """A grammar to come; cancel it if it is not wanted any more."""
        future: Future[Compiled] = Future()
        with self._lock:
            if self._closed:
                raise ModelError("the model is closed; open it again to go on")
            if self._owner != os.getpid():
                raise ModelError("the model was opened before os.fork(); open it in this process")
            if (known := self._used.get(grammar)) is not None:
                self._keep(grammar, known)
                future.set_result(known)
                return future
            job = self._jobs.get(grammar)
            if job is not None:
                job.waiting.append(future)
            else:
                job = self._begin(grammar, future)
        future.add_done_callback(partial(self._left, job))
        return future

    def close(self) -> None:
        """Compile no more; those who wait are told."""
        with self._lock:
            self._closed = True
            jobs = list(self._jobs.values())
        for job in jobs:
            self._done(job, ModelError("the model was closed while a grammar was compiled"))
        self._stop()

    def _trial(self, seconds: float) -> TrialProcess:
        limits = self._limits
        return TrialProcess(self.vocabulary, seconds, limits.patience, limits.memory)

    def _begin(self, grammar: Grammar, future: Future[Compiled]) -> Job:
        if len(self._jobs) >= self._limits.waiting:
            raise QueueFullError(
                f"{len(self._jobs)} grammars wait to be compiled, which is the limit; "
                "try again later"
            )
        job = Job(grammar, self._done, [future])
        self._lanes[0].put(job)
        self._jobs[grammar] = job
        return job

    def _left(self, job: Job, future: Future[Compiled]) -> None:
        """Hear that somebody waits no more; a job for nobody ends."""
        if not future.cancelled():
            return
        with self._lock:
            if future in job.waiting:
                job.waiting.remove(future)
            if job.waiting:
                return
            self._forget(job)
        for lane in self._lanes:
            lane.drop(job)

    def _done(self, job: Job, result: Compiled | Exception) -> None:
        with self._lock:
            self._forget(job)
            waiting, job.waiting = job.waiting, []
            if isinstance(result, Compiled):
                self._used[job.grammar] = result
                self._keep(job.grammar, result)
        for future in waiting:
            if not future.set_running_or_notify_cancel():
                continue
            if isinstance(result, Compiled):
                future.set_result(result)
            else:
                future.set_exception(result)

    def _forget(self, job: Job) -> None:
        if self._jobs.get(job.grammar) is job:
            del self._jobs[job.grammar]

    def _keep(self, grammar: Grammar, compiled: Compiled) -> None:
        """Keep those that were used last, as many as there may be."""
        self._kept[grammar] = compiled
        self._kept.move_to_end(grammar)
        memory = sum(each.memory for each in self._kept.values())
        while len(self._kept) > 1 and (
            len(self._kept) > self._limits.kept or memory > self._limits.kept_memory
        ):
            memory -= self._kept.popitem(last=False)[1].memory


def _close(lanes: tuple[Lane, ...]) -> None:
    for lane in lanes:
        lane.close()
