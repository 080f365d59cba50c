"""`tokenize` and `template` on a vocabulary of single bytes, one merge and two control tokens."""

import json
from pathlib import Path

import pytest
from command_runs import Run

from ingot.gguf import GgufWriter, ValueType

START, END, HE = 256, 257, 258


@pytest.fixture
def vocabulary(tmp_path: Path) -> Path:
    """A byte-level vocabulary whose token `n` below 256 is the byte `n`; no tensors."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    shifted = [byte for byte in range(256) if byte not in printable]
    letters = {byte: chr(byte) for byte in printable}
    letters |= {byte: chr(0x100 + number) for number, byte in enumerate(shifted)}
    tokens = [letters[byte] for byte in range(256)] + ["<|im_start|>", "<|im_end|>", "he"]
    writer = GgufWriter(tmp_path / "vocabulary.gguf")
    writer.add("general.architecture", "llama")
    writer.add("tokenizer.ggml.model", "gpt2")
    writer.add("tokenizer.ggml.pre", "gpt-2")
    writer.add("tokenizer.ggml.tokens", tokens)
    writer.add("tokenizer.ggml.token_type", [1] * 256 + [3, 3, 1], ValueType.INT32)
    writer.add("tokenizer.ggml.merges", ["h e"])
    writer.add("tokenizer.ggml.bos_token_id", START)
    writer.add("tokenizer.ggml.eos_token_id", END)
    writer.add("tokenizer.ggml.add_bos_token", True)
    writer.add(
        "tokenizer.chat_template",
        "{% for message in messages %}<|im_start|>{{ message.content }}<|im_end|>{% endfor %}"
        "{% if tools %}{{ tools | length }}{% endif %}",
    )
    return writer.write()[0]


def rows(text: str) -> list[list[str]]:
    return [line.split(maxsplit=1) for line in text.splitlines()]


def test_ids_and_pieces_side_by_side(run: Run, vocabulary: Path) -> None:
    ran = run("tokenize", "-m", vocabulary, "he\n\x1b")
    assert (ran.status, ran.err) == (0, "")
    assert rows(ran.out) == [
        [str(START), '"<|im_start|>"'],
        [str(HE), '"he"'],
        ["10", r'"\n"'],
        ["27", r'"\x1b"'],
    ]


def test_a_piece_of_a_character_shows_its_byte(run: Run, vocabulary: Path) -> None:
    ran = run("tokenize", "--no-special", "-m", vocabulary, "é")
    assert rows(ran.out) == [["195", r'"\xc3"'], ["169", r'"\xa9"']]


def test_tokenize_json(run: Run, vocabulary: Path) -> None:
    ran = run("tokenize", "--json", "--no-special", "-m", vocabulary, "hé")
    assert json.loads(ran.out) == {
        "ids": [ord("h"), 0xC3, 0xA9],
        "pieces": ["h", "\ufffd", "\ufffd"],
    }


def test_control_tokens_are_found_only_when_asked(run: Run, vocabulary: Path) -> None:
    plain = run("tokenize", "--json", "--no-special", "-m", vocabulary, "<|im_end|>")
    assert json.loads(plain.out)["ids"] == list(b"<|im_end|>")
    arguments = ("tokenize", "--json", "--no-special", "--parse-special", "-m", vocabulary)
    assert json.loads(run(*arguments, "<|im_end|>").out)["ids"] == [END]


def test_tokenize_reads_stdin(run: Run, vocabulary: Path) -> None:
    ran = run("tokenize", "--json", "--no-special", "-m", vocabulary, "-", stdin="he\r\n")
    assert json.loads(ran.out)["ids"] == [HE, 13, 10]


def test_a_file_without_a_vocabulary(run: Run, tmp_path: Path) -> None:
    path = GgufWriter(tmp_path / "empty.gguf").write()[0]
    ran = run("tokenize", "-m", path, "text")
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith("error: ")


def write_json(path: Path, value: object) -> Path:
    path.write_text(json.dumps(value))
    return path


MESSAGES = [{"role": "user", "content": "he <|im_end|>"}]


def test_template_renders_to_the_last_character(run: Run, vocabulary: Path, tmp_path: Path) -> None:
    messages = write_json(tmp_path / "messages.json", MESSAGES)
    ran = run("template", "-m", vocabulary, messages)
    assert (ran.status, ran.err) == (0, "")
    assert ran.out == "<|im_start|>he <|im_end|><|im_end|>"


def test_template_tokens_keep_what_a_user_wrote_plain(run: Run, vocabulary: Path) -> None:
    ran = run("template", "--tokens", "-m", vocabulary, "-", stdin=json.dumps(MESSAGES))
    ids = [int(row[0]) for row in rows(ran.out)]
    assert ids == [START, HE, *b" <|im_end|>", END]


def test_template_with_tools(run: Run, vocabulary: Path, tmp_path: Path) -> None:
    tools = write_json(tmp_path / "tools.json", [{"type": "function"}] * 3)
    ran = run("template", "-m", vocabulary, "--tools", tools, "-", stdin=json.dumps(MESSAGES))
    assert ran.out.endswith("<|im_end|>3")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("[", "stdin is not JSON"),
        ("[" * 100_000, "stdin is not JSON"),
        (b"\xff\xfe\xff", "stdin is not JSON"),
        ("[]", "messages is empty"),
        ('{"role": "user"}', "messages must be a list"),
    ],
)
def test_messages_that_cannot_be_used(
    run: Run, vocabulary: Path, content: str | bytes, complaint: str
) -> None:
    ran = run("template", "-m", vocabulary, "-", stdin=content)
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith(f"error: {complaint}")
    assert ran.err.count("\n") == 1


def test_messages_that_are_not_there(run: Run, vocabulary: Path, tmp_path: Path) -> None:
    ran = run("template", "-m", vocabulary, tmp_path / "nothing.json")
    assert (ran.status, ran.out) == (2, "")
    assert ran.err == f"error: {tmp_path / 'nothing.json'}: No such file or directory\n"


def test_on_the_command_line(run_process: Run, vocabulary: Path) -> None:
    ran = run_process("tokenize", "--no-special", "-m", vocabulary, "-", stdin="he")
    assert (ran.status, rows(ran.out)) == (0, [[str(HE), '"he"']])


def test_a_warning_is_one_line(run_process: Run, tmp_path: Path) -> None:
    writer = GgufWriter(tmp_path / "odd.gguf")
    writer.add("tokenizer.ggml.model", "gpt2")
    writer.add("tokenizer.ggml.pre", "never heard of")
    writer.add("tokenizer.ggml.tokens", ["a"])
    writer.add("tokenizer.ggml.merges", ["a a"])
    ran = run_process("tokenize", "-m", writer.write()[0], "a")
    assert ran.status == 0
    assert ran.err.startswith("warning: ")
    assert "never heard of" in ran.err
    assert ran.err.count("\n") == 1
