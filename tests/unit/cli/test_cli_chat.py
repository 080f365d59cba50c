"""`ingot chat`: with piped input, and at a terminal."""

import json
import os
import signal
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest
from command_runs import INGOT, PATIENCE, Run
from terminals import CTRL_C, CTRL_D, ENTER, MORE, PROMPT, AtTerminal

from ingot import LLM
from ingot.cli.chat.slash_commands import COMMANDS
from ingot.cli.shared.output import printable
from tiny_llama import write_tiny_llama

GREEDY = ("--temp", 0, "-t", 1)
ENDLESS = ("-n", 100_000, "-c", 150_000, "--ignore-eos")
FEW = {"max_tokens": 4, "temperature": 0}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_tiny_llama(tmp_path / "tiny.gguf")


@pytest.fixture
def talkative(tmp_path: Path) -> Path:
    """A model that does not stop by itself for a long time."""
    return write_tiny_llama(tmp_path / "long.gguf", keys={"llama.context_length": 200_000})


def answers(model: Path, *messages: str, system: str | None = None) -> list[str]:
    with LLM(model, threads=1) as llm:
        session = llm.session(system, **FEW)
        return [session.send(message).text for message in messages]


def lines(texts: Iterable[str]) -> str:
    return "".join(f"{text}\n" for text in texts)


def on_terminal(answer: str) -> str:
    return printable(answer, keep="\n\t").replace("\n", "\r\n")


def test_every_line_of_a_pipe_is_a_message(run: Run, model: Path) -> None:
    ran = run("chat", *GREEDY, "-m", model, "-n", 4, stdin="hi\n\n  \ngrüße\r\nho")
    assert ran.status == 0
    assert ran.out == lines(answers(model, "hi", "grüße", "ho"))
    assert set(ran.err.splitlines()) <= {"the answer stopped at --max-tokens"}


def test_nothing_is_no_error(run: Run, model: Path) -> None:
    ran = run("chat", *GREEDY, "-m", model, stdin="")
    assert (ran.status, ran.out, ran.err) == (0, "", "")
    assert run("chat", *GREEDY, "-m", model, "-n", 2, stdin=b"\xff\xfe\n").status == 0


def test_messages_of_several_lines(run: Run, model: Path) -> None:
    typed = 'a\\\n b\\\nc\n"""\nd\n\n/reset \\\n"""\n"""\ne'
    ran = run("chat", *GREEDY, "-m", model, "-n", 4, stdin=typed)
    assert ran.out == lines(answers(model, "a\n b\nc", "d\n\n/reset \\", "e"))
    cut = run("chat", *GREEDY, "-m", model, "-n", 4, stdin="a\\")
    assert cut.out == lines(answers(model, "a"))


def test_the_system_message(run: Run, model: Path) -> None:
    ran = run("chat", *GREEDY, "-m", model, "-n", 4, "--system", "Be kind.", stdin="hi\n")
    assert ran.out == lines(answers(model, "hi", system="Be kind."))
    typed = "/system\n/system Be kind.\nhi\n/system -\n"
    ran = run("chat", *GREEDY, "-m", model, "-n", 4, stdin=typed)
    assert ran.out == lines(answers(model, "hi", system="Be kind."))
    said = [line for line in ran.err.splitlines() if "system" in line]
    assert said == [
        "no system message",
        "system message: Be kind.",
        "no system message",
    ]


def test_reset_undo_and_retry(run: Run, model: Path) -> None:
    first, second = answers(model, "hi", "ho")
    typed = "hi\nho\n/retry\n/undo\nho\n/reset\nhi\n/RESET\nhi\n"
    ran = run("chat", *GREEDY, "-m", model, "-n", 4, stdin=typed)
    assert ran.out == lines([first, second, second, second, first, first])
    assert "removed: ho\n" in ran.err
    assert ran.err.count("started a new conversation\n") == 2


def test_a_seed_gives_the_same_answers_and_retry_others(run: Run, model: Path) -> None:
    def talk(typed: str) -> list[str]:
        flags = ("--temp", 3, "--top-k", 0, "--top-p", 1, "--min-p", 0, "--seed", 5)
        return run("chat", "-m", model, "-t", 1, "-n", 8, *flags, stdin=typed).out.split("\n")

    once = talk("hi\n/retry\n/retry\n")
    assert once == talk("hi\n/retry\n/retry\n")
    assert len(set(once)) == 4  # and nothing after the last line


def test_save_and_load(run: Run, model: Path, tmp_path: Path) -> None:
    path = tmp_path / "my chat.json"
    typed = f"/system Be kind.\nhi\n/save {path}\nho\n"
    ran = run("chat", *GREEDY, "-m", model, "-n", 4, stdin=typed)
    first, second = answers(model, "hi", "ho", system="Be kind.")
    assert ran.out == lines([first, second])
    assert f"saved to {path}\n" in ran.err
    assert [message["content"] for message in json.loads(path.read_text())["messages"]] == [
        "Be kind.",
        "hi",
        first,
    ]
    ran = run("chat", *GREEDY, "-m", model, "-n", 4, stdin=f"/load {path}\nho\n")
    assert ran.out == lines([second])
    assert f"loaded {path}; exchanges: 1\n" in ran.err


def test_stats(run: Run, model: Path) -> None:
    ran = run("chat", *GREEDY, "-m", model, "-n", 4, stdin="/stats\nhi\n/stats\n")
    (answer,) = answers(model, "hi")
    before, _, length, last = ran.err.splitlines()
    assert before == "exchanges: 0; context: 0 of 256 tokens"
    tokens = len(answer.encode()) + 6  # four of control and two of "hi"
    assert length == f"exchanges: 1; context: {tokens} of 256 tokens"
    assert last.startswith("last answer: prompt 5 tokens (0 from the cache) in ")
    assert "generated 4 tokens, " in last


def test_help_names_every_command(run: Run, model: Path) -> None:
    err = run("chat", "-m", model, stdin="/help\n").err
    assert all(f"/{name}" in err for name in COMMANDS)
    assert '"""' in err


def test_exit_ends_it(run: Run, model: Path) -> None:
    ran = run("chat", *GREEDY, "-m", model, "-n", 4, stdin="hi\n/exit\nho\n")
    assert (ran.status, ran.out) == (0, lines(answers(model, "hi")))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("/nonsense", "unknown command /nonsense; /help lists the commands"),
        ("/reset all", "/reset takes no argument"),
        ("/save", "/save needs an argument: /save FILE"),
        ("/load", "/load needs an argument: /load FILE"),
        ("/load missing.json", "missing.json: No such file or directory"),
        ("/save a\0b", r"a\x00b cannot be written: no file can have this name"),
        ("/load a\0b", r"a\x00b cannot be read: no file can have this name"),
        ("/save missing/x.json", "missing/x.json cannot be written: No such file or directory"),
        ("/undo", "there is no message to remove"),
        ("/retry", "there is no message to answer again"),
        ("x" * 300, "this message alone has 303 tokens"),
    ],
)
def test_errors_in_a_pipe(run: Run, model: Path, line: str, message: str) -> None:
    ran = run("chat", *GREEDY, "-m", model, stdin=f"{line}\nhi\n")
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith("error: ")
    assert message in ran.err
    assert ran.err.count("\n") == 1


def test_a_foreign_file(run: Run, model: Path) -> None:
    ran = run("chat", "-m", model, stdin=f"/load {model}\n")
    assert ran.status == 2
    assert "is not a saved conversation" in ran.err


@pytest.mark.parametrize("line", ["/usr/bin is a folder", "/ is the root", "1/2"])
def test_a_slash_is_not_always_a_command(run: Run, model: Path, line: str) -> None:
    ran = run("chat", *GREEDY, "-m", model, "-n", 4, stdin=f"{line}\n")
    assert ran.out == lines(answers(model, line))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--overflow", "shift"], "overflow is 'shift'; it must be 'error' or 'drop'"),
        (["--top-p", "2"], "top_p is 2.0; it must be a number from 0 to 1"),
        (["--context", "257"], "context is 257; this model allows 1 to 256"),
        (["-n", "0"], "0"),
        (["hi"], "hi"),
    ],
)
def test_bad_flags(run: Run, model: Path, flags: list[str], message: str) -> None:
    ran = run("chat", "-m", model, *flags, stdin="hi\n")
    assert (ran.status, ran.out) == (2, "")
    assert message in ran.err


def test_a_full_context(run: Run, model: Path) -> None:
    typed = f"{'x' * 200}\nhi\n"
    ran = run("chat", *GREEDY, "-m", model, "--ignore-eos", stdin=typed)
    assert ran.status == 2
    full, error = ran.err.splitlines()
    assert full == "the answer stopped: the context of 256 tokens is full; /reset starts anew"
    assert "(in this chat: /reset, --overflow drop or --context)" in error
    ran = run("chat", *GREEDY, "-m", model, "--ignore-eos", "--overflow", "drop", stdin=typed)
    assert ran.status == 0
    assert "the context is full; oldest messages omitted: 1" in ran.err


def test_a_model_without_a_template(run: Run, tmp_path: Path) -> None:
    base = write_tiny_llama(tmp_path / "base.gguf", template=None)
    ran = run("chat", *GREEDY, "-m", base, "-n", 2, stdin="hi\n")
    assert ran.status == 0
    assert ran.err.startswith("the model has no chat template; using ChatML\n")


def test_ctrl_c_ends_a_piped_chat(talkative: Path) -> None:
    command = [INGOT, "chat", *GREEDY, *ENDLESS, "-m", talkative]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        list(map(str, command)), stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"hi\nho\n")
        process.stdin.flush()
        process.stdout.read(8)
        os.kill(process.pid, signal.SIGINT)
        process.communicate(timeout=PATIENCE)
    assert process.returncode == 130


def test_at_a_terminal(model: Path, cache: Path) -> None:
    with AtTerminal("chat", *GREEDY, "-m", model, "-n", 4) as terminal:
        assert "tiny.gguf: /help lists the commands, Ctrl-D exits" in terminal.wait_for("\n")
        terminal.enter("hi")
        assert "\r " not in terminal.wait_for(PROMPT)  # no line of the answer is erased
        terminal.press("/nonsense" + ENTER.decode())
        terminal.wait_for("error: unknown command /nonsense; /help lists the commands")
        terminal.enter("/load missing.json")
        terminal.wait_for("error: missing.json: No such file or directory")
        terminal.enter("x" * 300)
        terminal.wait_for("error: the conversation has ")
        terminal.enter("/stats")
        terminal.wait_for("exchanges: 1; ")
        terminal.enter('"""')  # a block, which Ctrl-C forgets
        terminal.wait_for(MORE)
        terminal.press("secret" + ENTER.decode())
        terminal.wait_for(MORE)
        terminal.interrupt_prompt("press Ctrl-D or type /exit to leave")
        terminal.wait_for(PROMPT)
        terminal.press(CTRL_D)
        status, _ = terminal.leave()
    assert status == 0
    kept = (cache.parent / "chat_history").read_text().splitlines()
    assert kept[:2] == ["hi", "/nonsense"]


def test_lines_of_earlier_chats_are_at_hand(model: Path) -> None:
    with AtTerminal("chat", *GREEDY, "-m", model, "-n", 2) as terminal:
        terminal.enter("/system Be kind.")
        terminal.enter("/exit")
        assert terminal.leave()[0] == 0
    with AtTerminal("chat", *GREEDY, "-m", model, "-n", 2) as terminal:
        terminal.wait_for(PROMPT)
        terminal.press(b"\x1b[A\x1b[A" + ENTER)  # up, up: the line before /exit
        terminal.wait_for("system message: Be kind.")
        terminal.wait_for(PROMPT)
        terminal.press(CTRL_D)
        assert terminal.leave()[0] == 0


def test_two_chats_at_once_keep_the_lines_of_both(model: Path, cache: Path) -> None:
    chat = ("chat", *GREEDY, "-m", model)
    with AtTerminal(*chat) as first, AtTerminal(*chat) as second:
        first.enter("/system One.")
        second.enter("/system Two.")
        for terminal in (first, second):
            terminal.enter("/exit")
            assert terminal.leave()[0] == 0
    kept = (cache.parent / "chat_history").read_text().splitlines()
    assert kept == ["/system One.", "/exit", "/system Two.", "/exit"]


def test_ctrl_c_stops_the_answer_and_not_the_program(talkative: Path, tmp_path: Path) -> None:
    path = tmp_path / "chat.json"
    shown = []
    with AtTerminal("chat", *GREEDY, *ENDLESS, "-m", talkative) as terminal:
        terminal.wait_for(PROMPT)
        for message in ("hi", "ho"):
            terminal.press(message.encode() + ENTER)
            terminal.wait_for("\n")
            shown.append(terminal.wait_for_more(20))  # in mid-answer
            terminal.press(CTRL_C)
            assert "/exit" not in terminal.wait_for(PROMPT)
        terminal.press(f"/save {path}".encode() + ENTER)
        terminal.wait_for("saved to")
        terminal.wait_for(PROMPT)
        terminal.press(CTRL_D)
        assert terminal.leave()[0] == 0
    messages = json.loads(path.read_text())["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant"] * 2
    assert [message["content"] for message in messages[::2]] == ["hi", "ho"]
    for seen, message in zip(shown, messages[1::2], strict=True):
        assert on_terminal(message["content"]).startswith(seen)


def test_ctrl_c_while_a_long_prompt_is_read(talkative: Path, tmp_path: Path) -> None:
    past = [{"role": "user", "content": "word " * 20_000}, {"role": "assistant", "content": "ah"}]
    path = tmp_path / "chat.json"
    path.write_text(json.dumps({"format": "ingot chat", "version": 1, "messages": past}))
    with AtTerminal("chat", *GREEDY, "-m", talkative, "-n", 2, "-c", 150_000) as terminal:
        terminal.enter(f"/load {path}")
        terminal.enter("hi")
        terminal.wait_for("reading the prompt [")
        terminal.press(CTRL_C)
        terminal.enter("/stats")
        terminal.wait_for("exchanges: 1; context: 100006 of")
        terminal.enter("/exit")
        assert terminal.leave()[0] == 0


def test_the_default_model_remembers(run: Run, smollm2_path: Path) -> None:
    typed = "What is the capital of France?\nAnd of Italy?\n"
    ran = run("chat", "--temp", 0, "-m", smollm2_path, "-n", 24, stdin=typed)
    france, italy = ran.out.splitlines()
    assert "Paris" in france
    assert "Rome" in italy
