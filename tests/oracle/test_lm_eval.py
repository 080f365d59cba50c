"""lm-eval scores texts through the server's `/v1/completions` as `LLM.score` does."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from ingot import LLM
from server.serving import serving

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.skipif(
        find_spec("lm_eval") is None, reason="lm-eval is not here: pip install '.[oracle]'"
    ),
]

CONTEXT = 512
QUESTIONS = [
    ("The capital of France is", ["Paris", "London, of all places", "Rome."]),
    ("Water freezes at", ["zero degrees Celsius", "noon"]),
    ("Ein Märchen beginnt mit:", ["„Es war einmal“", "🍮 und Ähnlichem"]),
    ("def add(a, b):\n    return", ["a + b", "a - b\n\n"]),
    ("The cat sat on the mat. " * 30 + "The cat sat on the", ["mat", "moon"]),
    ("<|im_start|>assistant\nYes", [".<|im_end|>", "and no"]),  # after which a text ends
]
TEXTS = [
    "Once upon a time there was a miller who had three sons.",
    "A text that is longer than the context the model has here. " * 60,
]

# lm-eval finds a task by its file; the data is a file beside it.
CHOICES = """
task: ingot_choices
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: 0
metric_list: [{{metric: acc, aggregation: mean, higher_is_better: true}}]
"""
ROLLING = """
task: ingot_rolling
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{{{text}}}}"
metric_list: [{{metric: word_perplexity}}]
"""
# The vocabulary of a GGUF file as transformers reads it.
MAKE_TOKENIZER = """
import sys
from transformers import AutoTokenizer
folder, name, target = sys.argv[1:]
AutoTokenizer.from_pretrained(folder, gguf_file=name).save_pretrained(target)
"""


def write_task(folder: Path, name: str, task: str, items: Sequence[dict[str, Any]]) -> None:
    data = folder / f"{name}.jsonl"
    data.write_text("".join(json.dumps(item) + "\n" for item in items))
    (folder / f"{name}.yaml").write_text(task.format(data=data))


def run(folder: Path, *command: object) -> None:
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(folder / "hf")}
    ran = subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=folder,
        env=os.environ | offline,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.fixture(scope="module")
def samples(
    smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[dict[str, Any]]]:
    """What lm-eval has found out, task by task."""
    folder = tmp_path_factory.mktemp("lm_eval")
    asked = [{"question": question, "choices": choices} for question, choices in QUESTIONS]
    write_task(folder, "ingot_choices", CHOICES, asked)
    write_task(folder, "ingot_rolling", ROLLING, [{"text": text} for text in TEXTS])
    run(folder, "-c", MAKE_TOKENIZER, smollm2_path.parent, smollm2_path.name, folder / "tokenizer")
    with serving(smollm2_path, "--context", CONTEXT) as served:
        model = {
            "model": "any",
            "base_url": f"{served.url}/v1/completions",
            "tokenizer_backend": "huggingface",
            "tokenizer": folder / "tokenizer",
            "max_length": CONTEXT,
            "max_retries": 1,
        }
        run(
            folder,
            *("-m", "lm_eval", "run", "--model", "local-completions", "--log_samples"),
            *("--model_args", ",".join(f"{name}={value}" for name, value in model.items())),
            *("--tasks", "ingot_choices,ingot_rolling", "--include_path", folder),
            *("--output_path", folder / "out"),
        )
    found: dict[str, list[dict[str, Any]]] = {}
    for task in ("ingot_choices", "ingot_rolling"):
        (file,) = (folder / "out").rglob(f"samples_{task}_*.jsonl")
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        found[task] = sorted(lines, key=lambda line: int(line["doc_id"]))
    return found


@pytest.fixture(scope="module")
def llm(smollm2_path: Path) -> LLM:
    return LLM(smollm2_path, context=CONTEXT)


def test_choices_have_the_loglikelihoods_of_score(
    samples: dict[str, list[dict[str, Any]]], llm: LLM
) -> None:
    for (question, choices), sample in zip(QUESTIONS, samples["ingot_choices"], strict=True):
        assert sample["doc"]["question"] == question
        before = llm.tokenizer.encode(question, parse_special=True)
        for choice, (response,) in zip(choices, sample["resps"], strict=True):
            whole = llm.tokenizer.encode(f"{question} {choice}", parse_special=True)
            assert whole[: len(before)] == before
            expected = sum(llm.score(whole).logprobs[len(before) - 1 :])
            assert float(response[0]) == pytest.approx(expected, abs=1e-4), (question, choice)
    best = [sample["acc"] for sample in samples["ingot_choices"][:2]]
    assert best == [1.0, 1.0]


def test_a_whole_text_has_the_loglikelihood_of_score(
    samples: dict[str, list[dict[str, Any]]], llm: LLM
) -> None:
    short, long = samples["ingot_rolling"]
    tokens = [llm.tokenizer.bos_id or 0, *llm.tokenize(TEXTS[0])]
    assert total(short) == pytest.approx(sum(llm.score(tokens).logprobs), abs=1e-4)
    assert len(llm.tokenize(TEXTS[1])) > CONTEXT  # read in windows
    assert total(long) < total(short)


def total(sample: dict[str, Any]) -> float:
    """The loglikelihood of a whole text."""
    return float(sample["resps"][0][0])
