"""Parameters that an endpoint does not have: refused, or ignored with a warning.

A request's body comes in. A parameter that would change or constrain the answer is an error,
because an answer without it is not what the client asked for. Any other unknown parameter, also one
in an object of parameters (`stream_options.x`), becomes a warning in the answer and in the log, or
an error with `--strict-parameters`. Messages are not parameters.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from types import MappingProxyType
from typing import Literal

from pydantic import BaseModel

from ingot.server.errors import ApiError
from ingot.server.http.access_log import AccessRecord
from ingot.server.options import ServerOptions
from ingot.server.sampling_body import ParameterGroup

Treatment = Literal["honoured", "refused", "warning"]
_MOST_WARNINGS = 16
_LONGEST_NAME = 64  # characters shown


@dataclass(frozen=True, slots=True)
class Refused:
    """Why a parameter is refused, and the values with which it asks for nothing."""

    reason: str
    neutral: tuple[object, ...] = ()
    false_asks: bool = False  # whether `false` asks for something, too

    def asks(self, value: object) -> bool:
        """Whether a value asks for something that is not done here."""
        if value is False and self.false_asks:
            return True
        return not _is_any_of(value, (*_NOTHING, *self.neutral))


_CHAT_ONLY = "only /v1/chat/completions has it"
_COMPLETIONS_ONLY = "only /v1/completions has it"
_FORMAT = "use json_schema or grammar, or the field of this API"
_SYSTEM = "send the system message as part of the conversation, or in the field of this API"
_ONE_ANSWER = "this endpoint generates one answer"
_BAN = "use logit_bias, with false for every token id that must not appear"
_TEMPLATE = "chat_template_kwargs sets variables of the template at chat endpoints"
_OLLAMA = "only Ollama's endpoints have it"

REFUSED: Mapping[str, Refused] = MappingProxyType(
    {
        "add_generation_prompt": Refused(_CHAT_ONLY, (True,)),
        "allowed_token_ids": Refused("use a grammar, or logit_bias"),
        "background": Refused("the client has to wait for the answer"),
        "bad_words": Refused(_BAN),
        "banned_strings": Refused(_BAN),
        "banned_tokens": Refused(_BAN),
        "best_of": Refused(_COMPLETIONS_ONLY, (1,)),
        "cfg_scale": Refused(_COMPLETIONS_ONLY, (1, 1.0)),
        "chat_template": Refused(
            "the model's own template is used; chat_template_kwargs sets its variables"
        ),
        "chat_template_kwargs": Refused(_TEMPLATE),
        "context": Refused("only /api/generate has it"),
        "continue_final_message": Refused(_CHAT_ONLY),
        "conversation": Refused("send all items, or previous_response_id at /v1/responses"),
        "documents": Refused("send them as part of the messages"),
        "echo": Refused(_COMPLETIONS_ONLY),
        "format": Refused("use response_format, or text.format at /v1/responses", ("",)),
        "function_call": Refused("use tool_choice", ("none",)),
        "functions": Refused("use tools"),
        "guidance_scale": Refused("use cfg_scale at /v1/completions", (1, 1.0)),
        "guided_whitespace_pattern": Refused("white space in JSON cannot be changed"),
        "image_data": Refused("only text is supported"),
        "images": Refused("only text is supported"),
        "include_stop_str_in_output": Refused("use /v1/chat/completions or /v1/completions"),
        "input": Refused("this endpoint takes messages or a prompt"),
        "instructions": Refused(_SYSTEM),
        "logits_processors": Refused("only the Python API runs processors"),
        "logprobs": Refused("use /v1/chat/completions or /v1/completions"),
        "lora": Refused("use /v1/chat/completions, /v1/completions or /completion"),
        "lora_request": Refused("name the adapter as the model, or use lora"),
        "max_output_tokens": Refused("use max_tokens"),
        "mcp_servers": Refused(
            "use tools of type mcp at /v1/chat/completions or /v1/responses; the server's "
            "--mcp-config names the servers"
        ),
        "messages": Refused("use /v1/chat/completions, /v1/messages or /api/chat"),
        "modalities": Refused("this server generates only text", (["text"],)),
        "n": Refused(_ONE_ANSWER, (1,)),
        "n_cmpl": Refused("only /completion has it; use n", (1,)),
        "n_probs": Refused("use /v1/chat/completions, /v1/completions or /completion"),
        "negative_prompt": Refused(_COMPLETIONS_ONLY),
        "options": Refused(f"{_OLLAMA}; send its parameters by themselves"),
        "output_config": Refused(_FORMAT),
        "parallel_tool_calls": Refused(
            "tool_choice.disable_parallel_tool_use is its name at /v1/messages", (True,), True
        ),
        "previous_response_id": Refused("only /v1/responses has it"),
        "prompt": Refused("this endpoint takes a conversation or input"),
        "prompt_logprobs": Refused("use echo with logprobs at /v1/completions"),
        "raw": Refused("only /api/generate has it"),
        "reasoning": Refused("use reasoning_effort, or the field of this API"),
        "reasoning_effort": Refused(
            "it is reasoning.effort at /v1/responses, output_config.effort at /v1/messages, and "
            "think at /api/chat"
        ),
        "reasoning_format": Refused("only chat endpoints separate reasoning", ("auto",)),
        "response_format": Refused(_FORMAT),
        "return_token_ids": Refused("use return_tokens at /completion"),
        "return_tokens_as_token_ids": Refused("use return_tokens at /completion"),
        "stop_sequences": Refused("use stop"),
        "structural_tag": Refused("use a grammar"),
        "suffix": Refused(_COMPLETIONS_ONLY),
        "system": Refused(_SYSTEM),
        "system_prompt": Refused(_SYSTEM),
        "t_max_predict_ms": Refused("use time_limit, in seconds", (-1,)),
        "template": Refused("the model's own template is used"),
        "text": Refused(_FORMAT, ({"format": {"type": "text"}},)),
        "think": Refused(f"{_OLLAMA}; {_TEMPLATE}", false_asks=True),
        "thinking": Refused(_TEMPLATE),
        "token_healing": Refused(_COMPLETIONS_ONLY),
        "tool_choice": Refused("this endpoint calls no tools", ("none", "auto")),
        "tools": Refused("this endpoint calls no tools; use /v1/chat/completions"),
        "top_logprobs": Refused("use /v1/chat/completions or /v1/completions"),
        "truncate_prompt_tokens": Refused("use /v1/chat/completions or /v1/completions"),
        "use_beam_search": Refused("only the Python API has beam search (LLM.beam_search)"),
    }
)
_NOTHING: tuple[object, ...] = (None, False, 0, "", [], {})


def treatment(body: type[BaseModel], name: str) -> Treatment:
    """What an endpoint with this body does with a parameter that asks for something."""
    if name in body.model_fields:
        return "honoured"
    return "refused" if name in REFUSED else "warning"


def check_parameters(body: BaseModel, record: AccessRecord, options: ServerOptions) -> None:
    """Refuse parameters of a body that the endpoint does not have, or note warnings about them."""
    unknown = body.model_extra or {}
    for name, value in unknown.items():
        refused = REFUSED.get(name)
        if refused is not None and refused.asks(value):
            raise ApiError(400, f"{name} is not supported here: {refused.reason}", param=name)
    found = [(name, type(body)) for name in unknown if name not in REFUSED]
    for name in type(body).model_fields:
        found += _within(getattr(body, name), name)
    if found and options.strict_parameters:
        raise ApiError(400, _unknown(*found[0]), param=found[0][0][:_LONGEST_NAME])
    shown = found[:_MOST_WARNINGS]
    record.ignored = [name[:_LONGEST_NAME] for name, _ in shown]
    record.warnings = [f"{_unknown(*each)} It was ignored." for each in shown]
    if len(found) > _MOST_WARNINGS:
        record.warnings.append(f"{len(found) - _MOST_WARNINGS} more parameters were ignored.")


def _within(value: object, place: str) -> Iterator[tuple[str, type[BaseModel]]]:
    """The unknown parameters of the objects in a value, with the objects' types."""
    if isinstance(value, ParameterGroup):
        unknown = value.model_extra or {}
        asked = [name for name in unknown if unknown[name] is not None]
        yield from ((f"{place}.{name}", type(value)) for name in asked)
        for name, known in type(value).model_fields.items():
            yield from _within(getattr(value, name), f"{place}.{known.alias or name}")
    elif isinstance(value, list) and value and isinstance(value[0], ParameterGroup):
        for number, each in enumerate(value):
            yield from _within(each, f"{place}[{number}]")


def _is_any_of(value: object, others: tuple[object, ...]) -> bool:
    return any(type(value) is type(other) and value == other for other in others)


def _unknown(name: str, owner: type[BaseModel]) -> str:
    known = [field.alias or each for each, field in owner.model_fields.items()]
    nearest = get_close_matches(name.rpartition(".")[2][:_LONGEST_NAME], known, 1)
    hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
    return f"{name[:_LONGEST_NAME]!r} is not a parameter of this endpoint.{hint}"
