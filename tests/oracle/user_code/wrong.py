"""Mistakes of a user: a type checker must find one in each marked line."""

from ingot import LLM, SamplingParams

llm = LLM("model.gguf", thread=2)  # wrong
llm.generate("a", max_token=3)  # wrong
llm.generate("a", temperature="hot")  # wrong
llm.stream("a", context_overflow="ignore")  # wrong
llm.chat([{"role": "user", "content": "hi"}], tool=[])  # wrong
llm.batch(["a"], sead=3)  # wrong
llm.session(overflow="forget")  # wrong
llm.session().send("hi", max_token=3)  # wrong
llm.generate("a", SamplingParams(top_q=3))  # wrong
llm.generate("a").txt  # wrong  # noqa: B018
llm.stream("a").fork(see=3)  # wrong
