"""A sampler is one class, its place in the order, and its parameter."""

from pathlib import Path

from contributing.changed_tree import ChangedTree

SAMPLER = '''"""Few: the `count` likeliest tokens."""

from dataclasses import dataclass

from ingot.sampling.candidates import Candidates
from ingot.sampling.sampler import Sampler


@dataclass(frozen=True, slots=True)
class Few(Sampler):
    count: int

    def apply(self, candidates: Candidates) -> None:
        candidates.keep_top(self.count)
'''
IMPORT = "from ingot.sampling.samplers.few import Few\n"
FLAG = '    few: Annotated[int | None, _option("--few", text="Keep few tokens.")] = None\n'
FACTORY = '        "few": lambda p: Few(p.few) if p.few else None,\n'
RUN = """
import sys
from pathlib import Path

from ingot import LLM, SamplingParams
from ingot.cli.shared.sampling_options import SamplingFlags
from ingot.errors import SamplingError
from tiny_llama import write_tiny_llama

assert "few" in SamplingParams().samplers
assert SamplingFlags(few=2).params(SamplingParams()).few == 2
try:
    SamplingParams(few=-1)
except SamplingError as error:
    assert "few" in str(error)
else:
    raise AssertionError("a wrong value is refused")
options = dict(max_tokens=12, top_k=0, top_p=1.0, min_p=0.0, ignore_eos=True, seed=3)
with LLM(write_tiny_llama(Path(sys.argv[1]) / "model.gguf")) as llm:
    greedy = llm.generate("ab", SamplingParams(temperature=0, **options))
    one = llm.generate("ab", SamplingParams(temperature=9.0, few=1, **options))
    any = llm.generate("ab", SamplingParams(temperature=9.0, **options))
assert one.token_ids == greedy.token_ids != any.token_ids
"""


def test_a_sampler_is_a_class_and_its_lines(tmp_path: Path) -> None:
    tree = ChangedTree(tmp_path)
    change = tree.follow("Add a sampler")
    folder = "src/ingot/sampling"
    change.add(f"{folder}/samplers/few.py", SAMPLER)
    change.insert(f"{folder}/order.py", '    "top_k",\n', '    "few",\n')
    change.insert(f"{folder}/params.py", "    top_k: int = 40\n", "    few: int = 0\n")
    change.insert(f"{folder}/checks.py", '        "top_k": ', '        "few": _count(0),\n')
    change.insert(f"{folder}/fields.py", "    top_k: int | None\n", "    few: int | None\n")
    builder = f"{folder}/chain_builder.py"
    change.insert(builder, "from ingot.sampling.samplers.draw", IMPORT)
    change.insert(builder, '        "top_k": ', FACTORY)
    change.insert("src/ingot/cli/shared/sampling_options.py", "    top_k: Annotated[", FLAG)
    tree.use_native()
    tree.run(RUN, tmp_path)
    assert len(change.files) == 7
