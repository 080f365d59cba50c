"""`ingot run`: what goes to stdout and stderr, and how it ends."""

import json
import os
import pty
import re
import signal
import subprocess
from inspect import signature
from pathlib import Path

import numpy as np
import pytest
from command_runs import INGOT, PATIENCE, Run
from terminals import shown_to_end

from ingot import LLM
from ingot.cli.shared.sampling_options import SamplingFlags
from ingot.sampling.checks import RANGES
from ingot.server.sampling_body import SamplingBody
from tiny_eagle import TinyEagle
from tiny_llama import WIDTH, shapes, vocabulary, write_tiny_llama

GREEDY = ("--temp", 0)  # the same text every time
HOT = ("-s", 1, "--temp", 3, "--samplers", "tfs;epsilon;eta;temperature")
ENDLESS = ("-t", 1, "-n", 100_000, "-c", 150_000, "--ignore-eos")
TIMINGS = re.compile(
    r"load \d+\.\d\d s; (first token \d+\.\d\d s; )?prompt (?P<prompt>\d+) tokens, [\d.]+ t/s; "
    r"generated (?P<generated>\d+) tokens, [\d.]+ t/s(; stopped .*)?\n$"
)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_tiny_llama(tmp_path / "tiny.gguf")


@pytest.fixture
def talkative(tmp_path: Path) -> Path:
    """A model that does not stop by itself for a long time."""
    return write_tiny_llama(tmp_path / "long.gguf", keys={"llama.context_length": 200_000})


def timings(err: str) -> tuple[int, int]:
    """The numbers of prompt tokens and of generated ones in the last line."""
    found = TIMINGS.search(err)
    assert found, err
    return int(found["prompt"]), int(found["generated"])


def test_a_message_is_answered(run: Run, model: Path) -> None:
    ran = run("run", *GREEDY, "-m", model, "-n", 12, "hi")
    assert ran.status == 0
    with LLM(model) as llm:
        ids = llm.tokenizer.encode(
            "<|start|>hi<|end|><|start|>", add_special=False, parse_special=True
        )
        done = llm.generate(ids, max_tokens=12, temperature=0)
    assert ran.out == done.text + "\n"
    assert timings(ran.err) == (5, 12)
    assert "stopped at --max-tokens" in ran.err


def test_a_text_is_continued(run: Run, model: Path) -> None:
    ran = run("run", *GREEDY, "--raw", "-m", model, "-n", 12, "hi")
    with LLM(model) as llm:
        assert ran.out == llm.generate("hi", max_tokens=12, temperature=0).text + "\n"
    assert timings(ran.err) == (3, 12)


def test_the_model_may_stand_before_the_prompt(run: Run, model: Path) -> None:
    flags = ("--raw", "-n", 4, *GREEDY)
    named = run("run", model, "abc", *flags)
    assert (named.status, named.out) == (0, run("run", "abc", "-m", model, *flags).out)
    twice = run("run", model, "abc", "-m", model)
    assert twice.status == 2
    assert "there are two models" in twice.err
    loose = run("run", model, "abc", "def")
    assert loose.status == 2
    assert "put the prompt in quotes" in loose.err
    alone = run("run", "hf:malformed")
    assert alone.err.splitlines()[-1].startswith("error: 'hf:malformed' is not a name")


def test_a_control_token_that_the_user_spells_is_text(run: Run, model: Path) -> None:
    assert timings(run("run", *GREEDY, "-m", model, "-n", 1, "<|end|>").err) == (3 + 7, 1)


def test_a_model_without_a_template_continues_the_text(run: Run, tmp_path: Path) -> None:
    base = write_tiny_llama(tmp_path / "base.gguf", template=None)
    ran = run("run", *GREEDY, "-m", base, "-n", 4, "hi")
    assert ran.status == 0
    assert ran.err.startswith("the model has no chat template; it continues the text\n")
    assert timings(ran.err) == (3, 4)
    assert run("run", *GREEDY, "--raw", "-m", base, "-n", 4, "hi").err.count("\n") == 1


def test_the_prompt_from_stdin(run: Run, model: Path) -> None:
    said = run("run", *GREEDY, "-m", model, "-n", 6, "grüße")
    read = run("run", *GREEDY, "-m", model, "-n", 6, "-", stdin="grüße".encode())
    assert read.out == said.out
    assert timings(read.err) == (3 + 7, 6)
    assert run("run", *GREEDY, "-m", model, "-n", 6, "-", stdin=b"\xff\xfe").status == 0


def test_an_example_where_there_is_no_prompt(run: Run, model: Path) -> None:
    ran = run("run", *GREEDY, "-m", model, "-n", 2)
    assert ran.status == 0
    assert ran.err.startswith("no prompt given, using an example: ")


def test_a_full_context_is_said(run: Run, model: Path) -> None:
    ran = run("run", *GREEDY, "--raw", "-m", model, "-c", 8, "hi")
    assert timings(ran.err) == (3, 5)
    assert "the context of 8 tokens is full; the model allows 256 (--context)" in ran.err


def test_a_seed_repeats_a_draw(run: Run, model: Path) -> None:
    def draw(seed: int) -> str:
        return run("run", "-m", model, "-n", 20, "--temperature", 2, "--seed", seed, "hi").out

    assert draw(3) == draw(3)
    assert draw(3) != draw(4)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--threads", "0"], "threads is 0; it must be a number from 1 to 1024"),
        (["--kv-type", "q2"], "kv_type is 'q2'; it must be one of f32"),
        (["--weights", "disk"], "weights is 'disk'; it must be one of auto, repack, map, lock"),
        (["--context", "257"], "context is 257; this model allows 1 to 256"),
        (["--temperature", "-1"], "temperature is -1.0; it must be a number of at least 0"),
        (["--context", "3"], "the prompt has 5 tokens and the context 3"),
        (["-n", "-1"], "-1"),
        (["--seed", "x"], "'x'"),
        (["--nonsense"], "--nonsense"),
    ],
)
def test_bad_flags(run: Run, model: Path, flags: list[str], message: str) -> None:
    ran = run("run", *GREEDY, "-m", model, *flags, "hi")
    assert (ran.status, ran.out) == (2, "")
    assert message in ran.err


@pytest.mark.parametrize("prompt", ["", " \n"])
def test_an_empty_prompt(run: Run, model: Path, prompt: str) -> None:
    ran = run("run", *GREEDY, "-m", model, prompt)
    assert (ran.status, ran.out, ran.err) == (2, "", "error: the prompt is empty\n")


def start(*arguments: object, **streams: int) -> subprocess.Popen[bytes]:
    command = [str(INGOT), "run", *map(str, (*GREEDY, *arguments))]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, **({"stderr": subprocess.PIPE} | streams)
    )


def test_ctrl_c_keeps_the_text_and_shows_the_timings(talkative: Path) -> None:
    process = start("-m", talkative, *ENDLESS, "hi")
    assert process.stdout is not None
    first = process.stdout.read(8)
    process.send_signal(signal.SIGINT)
    rest, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert (first + rest).endswith(b"\n")
    prompt, generated = timings(err.decode())
    assert prompt == 5
    assert 1 < generated < 100_000
    assert err.count(b"\n") == 1


def test_a_reader_that_goes_away_ends_it(talkative: Path) -> None:
    with start("-m", talkative, *ENDLESS, "hi") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(8)
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


def test_a_bar_on_a_terminal_while_a_long_prompt_is_read(talkative: Path) -> None:
    leader, follower = pty.openpty()
    with start("-m", talkative, "-t", 1, "-n", 1, "word " * 300, stderr=follower) as process:
        os.close(follower)
        text = shown_to_end(leader)
    assert process.returncode == 0
    assert "reading the prompt [          " in text
    assert "512 of 1503 tokens" in text
    assert re.search(r"\r +\rload ", text)  # the bar is gone


def test_no_bar_without_a_terminal(run: Run, talkative: Path) -> None:
    ran = run("run", *GREEDY, "-m", talkative, "-n", 1, "word " * 300)
    assert ran.err.count("\n") == 1
    assert "\r" not in ran.err


def test_control_characters_do_not_steer_a_terminal(tmp_path: Path) -> None:
    # A model without layers to speak of, whose likeliest token is always ESC.
    embedding = np.zeros((len(vocabulary()), WIDTH), np.float32)
    embedding[:, 0] = 1.0
    embedding[0x1B, 0] = 2.0
    zeros = {name: np.zeros(shape, np.float32) for name, shape in shapes().items() if "blk" in name}
    model = write_tiny_llama(
        tmp_path / "escape.gguf",
        tensors={
            **zeros,
            "token_embd.weight": embedding,
            "output_norm.weight": np.ones(WIDTH, np.float32),
        },
    )
    piped = start("-m", model, "-n", 3, "hi")
    assert piped.communicate(timeout=PATIENCE)[0] == b"\x1b\x1b\x1b\n"
    leader, follower = pty.openpty()
    command = [str(INGOT), "run", "-m", str(model), "-n", "3", "hi"]
    done = subprocess.run(command, stdout=follower, stderr=subprocess.DEVNULL, check=True)
    os.close(follower)
    assert done.returncode == 0
    assert shown_to_end(leader) == "\\x1b\\x1b\\x1b\r\n"


def test_the_default_model_knows_a_capital(run: Run, smollm2_path: Path) -> None:
    ran = run("run", *GREEDY, "-m", smollm2_path, "-n", 12, "What is the capital of France?")
    assert ran.status == 0
    assert "Paris" in ran.out
    assert timings(ran.err)[1] <= 12


def test_sampling_flags_change_the_text(run: Run, model: Path) -> None:
    def write(*flags: object) -> str:
        ran = run("run", "-m", model, "-n", 16, *flags, "hi")
        assert ran.status == 0, ran.err
        return ran.out

    greedy = write("--temp", 0)
    assert write("--top-k", 1) == greedy
    assert write("--temp", 5, "--samplers", "top_k;temperature", "--top-k", 1) == greedy
    drawn = write("--temp", 3, "--top-k", 0, "--top-p", 1, "--min-p", 0, "-s", 1)
    assert drawn != greedy
    assert write("--temp", 0, "--repeat-penalty", 5) != greedy
    letters = ("--temp", 0, "--ignore-eos", "-l", f"{ord('a')}+1000", "--logit-bias")
    assert write(*letters, f"{ord('b')}+900.5").strip() == "a" * 16
    assert write(*letters, f"{ord('a')}-inf", "-l", f"{ord('b')}+1000").strip() == "b" * 16
    for flags in (["--mirostat", 2], ["--typical", 0.5], ["--top-nsigma", 1],
                  ["--dry-multiplier", 1], ["--xtc-probability", 1], ["--presence-penalty", 1],
                  ["--frequency-penalty", 1], ["--repeat-last-n", -1],
                  ["--dry-multiplier", 1, "--dry-sequence-breaker", "x", "--dry-base", 2],
                  ["--adaptive-target", 0.2, "--adaptive-decay", 0.5]):  # fmt: skip
        assert write("-s", 1, *flags)
    for flags in (["--tfs", 0.01], ["--epsilon-cutoff", 0.9], ["--eta-cutoff", 0.9]):
        assert write(*HOT, *flags) != write(*HOT)


def test_every_sampling_parameter_has_a_flag_and_a_field_in_requests() -> None:
    names = {*RANGES, "samplers", "dry_sequence_breakers", "logit_bias"} - {"n_probs"}
    assert names <= SamplingBody.model_fields.keys()
    assert names - {"min_tokens"} <= signature(SamplingFlags).parameters.keys()


def test_stop_texts(run: Run, model: Path) -> None:
    with LLM(model) as llm:
        ids = llm.tokenizer.encode("hi")
        whole = llm.generate(ids, max_tokens=12, temperature=0).text
    stop = next(letter for letter in whole[3:] if letter not in whole[:3])
    ran = run("run", *GREEDY, "--raw", "-m", model, "-n", 12, "--stop", stop, "--stop", "zz", "hi")
    assert ran.out == whole.partition(stop)[0] + "\n"


def test_grammars(run: Run, model: Path, tmp_path: Path) -> None:
    gbnf, lark = tmp_path / "yes.gbnf", tmp_path / "yes.lark"
    gbnf.write_bytes(b'\xef\xbb\xbfroot ::= "yes" |\r\n  "no"\r\n')  # as Windows saves it
    lark.write_text('start: "yes" | "no"')
    for flags in (
        ["--grammar-file", gbnf],
        ["--grammar-file", lark],
        ["--json-schema", '{"enum": ["yes", "no"]}'],
    ):
        ran = run("run", "-m", model, "-n", 12, *flags, "hi")
        assert ran.out.strip('"\n') in ("yes", "no"), ran.err


def test_a_grammar_that_is_no_text(run: Run, model: Path, tmp_path: Path) -> None:
    grammar = tmp_path / "latin.gbnf"
    grammar.write_bytes(b'root ::= "caf\xe9"')
    ran = run("run", "-m", model, "--grammar-file", grammar, "hi")
    assert (ran.status, ran.out) == (2, "")
    assert f"{grammar} is not UTF-8 text" in ran.err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--top-p", "2"], "top_p is 2.0; it must be a number from 0 to 1"),
        (["--logit-bias", "a+1"], "--logit-bias is 'a+1'; it must be a token id"),
        (["--logit-bias", "97"], "15043+1.5"),
        (["--logit-bias", "97+inf"], "logit_bias"),
        (["--samplers", "top_k;best"], "samplers is ['top_k', 'best']"),
        (["--json-schema", "{"], "the JSON schema is not valid JSON"),
        (["--json-schema", '{"type": "strng"}'], "grammar cannot be used"),
        (["--grammar-file", "missing.gbnf"], "missing.gbnf"),
        (["--grammar-file", "x", "--json-schema", "{}"], "not both"),
    ],
)
def test_bad_sampling_flags(run: Run, model: Path, flags: list[str], message: str) -> None:
    ran = run("run", "-m", model, *flags, "hi")
    assert (ran.status, ran.out) == (2, "")
    assert message in ran.err


def test_guesses_change_nothing(run: Run, model: Path) -> None:
    asked = ("run", *GREEDY, "--ignore-eos", "-m", model, "-n", 40, "abcabcabcabc")
    plain = run(*asked)
    assert plain.status == 0
    for flags in (("--speculation", "ngram"), ("--speculation", "auto"), ("--draft", model)):
        assert run(*asked, *flags).out == plain.out
    guessed = run(*asked, "--draft", model)
    assert re.search(r"t/s; \d+ of \d+ guesses right; stopped at --max-tokens", guessed.err)
    numbers = json.loads(run(*asked, "--draft", model, "--json").out)
    assert numbers["guessed_tokens"] >= numbers["accepted_tokens"] > 10
    eagle = TinyEagle(layers=(0, 1, 2)).write(model.with_name("eagle.gguf"))
    assert run(*asked, "--draft", eagle).out == plain.out
    alone = run("run", "-m", eagle, "hi")
    assert (alone.status, alone.out) == (2, "")
    assert "eagle.gguf is a draft (eagle3)" in alone.err
    small = model.with_name("small.gguf")
    assert run("quantize", eagle, small, "q4_k_m").status == 0
    assert run(*asked, "--draft", small).out == plain.out
    wrong = run(*asked, "--speculation", "magic")
    assert wrong.status == 2
    assert "speculation is 'magic'; it must be 'off', 'auto', 'ngram'" in wrong.err
