"""GrammarCompiler: from a `Grammar` to a matcher over a vocabulary, for any number of threads.

In: a grammar in any of its languages. Out: the compiled grammar, or a future of it. A grammar that
llguidance cannot enforce exactly is refused with the reason, and so is one that takes more time or
memory than the limits allow (limits.py). Slow grammars move to a second worker, so that they do
not delay the others. No lock is held while a grammar compiles.
"""

import os
import weakref
from collections import OrderedDict
from concurrent.futures import Future
from functools import partial
from threading import Lock

from ingot.errors import ModelError, QueueFullError
from ingot.sampling.grammar.compile_worker import CompiledGrammar, CompileJob, CompileWorker
from ingot.sampling.grammar.limits import GrammarLimits
from ingot.sampling.grammar.spec import Grammar
from ingot.sampling.grammar.trial_process import TrialProcess
from ingot.sampling.grammar.vocabulary import GrammarVocabulary
from ingot.tokenizer import Tokenizer


class GrammarCompiler:
    """Compiles grammars for one vocabulary and keeps those used last."""

    def __init__(self, tokenizer: Tokenizer, limits: GrammarLimits | None = None) -> None:
        self.vocabulary = GrammarVocabulary(tokenizer)
        self._limits = limits = limits or GrammarLimits()
        slow = CompileWorker(self.vocabulary, self._trial(limits.seconds))
        self._workers = (
            CompileWorker(self.vocabulary, self._trial(limits.quick_seconds), slow),
            slow,
        )
        self._lock = Lock()  # guards the next four
        self._kept = OrderedDict[Grammar, CompiledGrammar]()
        self._used: weakref.WeakValueDictionary[Grammar, CompiledGrammar] = (
            weakref.WeakValueDictionary()
        )
        self._jobs: dict[Grammar, CompileJob] = {}
        self._closed = False
        self._owner = os.getpid()
        self._stop = weakref.finalize(self, _close, self._workers)

    def wait(self, grammar: Grammar) -> CompiledGrammar:
        """Compile a grammar and wait for it; an interrupt cancels the wait."""
        future = self.compile(grammar)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def compile(self, grammar: Grammar) -> Future[CompiledGrammar]:
        """Compile a grammar without waiting; cancel the future if it is no longer needed."""
        future: Future[CompiledGrammar] = Future()
        with self._lock:
            if self._closed:
                raise ModelError("the model is closed; open it again")
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
        future.add_done_callback(partial(self._abandon, job))
        return future

    def close(self) -> None:
        """Stop compiling; waiting callers get a `ModelError`."""
        with self._lock:
            self._closed = True
            jobs = list(self._jobs.values())
        for job in jobs:
            self._done(job, ModelError("the model was closed while a grammar was compiled"))
        self._stop()

    def _trial(self, seconds: float) -> TrialProcess:
        limits = self._limits
        return TrialProcess(self.vocabulary, seconds, limits.patience, limits.memory)

    def _begin(self, grammar: Grammar, future: Future[CompiledGrammar]) -> CompileJob:
        if len(self._jobs) >= self._limits.waiting:
            raise QueueFullError(
                f"{len(self._jobs)} grammars are waiting to be compiled, which is the limit; "
                "try again later"
            )
        job = CompileJob(grammar, self._done, [future])
        self._workers[0].put(job)
        self._jobs[grammar] = job
        return job

    def _abandon(self, job: CompileJob, future: Future[CompiledGrammar]) -> None:
        """Drop a caller that cancelled its future; a job without callers ends."""
        if not future.cancelled():
            return
        with self._lock:
            if future in job.waiting:
                job.waiting.remove(future)
            if job.waiting:
                return
            self._forget(job)
        for worker in self._workers:
            worker.drop(job)

    def _done(self, job: CompileJob, result: CompiledGrammar | Exception) -> None:
        with self._lock:
            self._forget(job)
            waiting, job.waiting = job.waiting, []
            if isinstance(result, CompiledGrammar):
                self._used[job.grammar] = result
                self._keep(job.grammar, result)
        for future in waiting:
            if not future.set_running_or_notify_cancel():
                continue
            if isinstance(result, CompiledGrammar):
                future.set_result(result)
            else:
                future.set_exception(result)

    def _forget(self, job: CompileJob) -> None:
        if self._jobs.get(job.grammar) is job:
            del self._jobs[job.grammar]

    def _keep(self, grammar: Grammar, compiled: CompiledGrammar) -> None:
        """Keep a grammar, and drop those that were not used for longest beyond the limits."""
        self._kept[grammar] = compiled
        self._kept.move_to_end(grammar)
        memory = sum(each.memory for each in self._kept.values())
        while len(self._kept) > 1 and (
            len(self._kept) > self._limits.kept or memory > self._limits.kept_memory
        ):
            memory -= self._kept.popitem(last=False)[1].memory


def _close(workers: tuple[CompileWorker, ...]) -> None:
    for worker in workers:
        worker.close()
