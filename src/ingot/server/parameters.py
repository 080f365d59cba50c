"""Parameters that an endpoint does not have: refused, or ignored with a warning.

A request's body comes in. A parameter that would change or constrain the answer is an error,
because an answer without it is not what the client asked for. Any other unknown parameter becomes a
warning in the answer and in the log, or an error with `--strict-parameters`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from types import MappingProxyType
from typing import Literal

from pydantic import BaseModel

from ingot.server.errors import ApiError
from ingot.server.http.access_log import AccessRecord
from ingot.server.options import ServerOptions

Treatment = Literal["honoured", "refused", "warning"]
_MOST_WARNINGS = 16
_LONGEST_NAME = 64  # characters shown


@dataclass(frozen=True, slots=True)
class Refused:
    """Why a parameter is refused, and the values with which it asks for nothing."""

    reason: str
    neutral: tuple[object, ...] = ()


_CHAT_ONLY = "only /v1/chat/completions has it"
_COMPLETIONS_ONLY = "only /v1/completions has it"
_FORMAT = "use json_schema or grammar, or the field of this API"
_SYSTEM = "send the system message as part of the conversation, or in the field of this API"
_ONE_ANSWER = "this endpoint generates one answer"

REFUSED: Mapping[str, Refused] = MappingProxyType(
    {
        "add_generation_prompt": Refused(_CHAT_ONLY, (True,)),
        "allowed_token_ids": Refused("use a grammar, or logit_bias"),
        "background": Refused("the client has to wait for the answer"),
        "bad_words": Refused("use logit_bias with false to ban tokens"),
        "banned_strings": Refused("use logit_bias with false to ban tokens"),
        "banned_tokens": Refused("use logit_bias with false to ban tokens"),
        "best_of": Refused(_COMPLETIONS_ONLY, (1,)),
        "cfg_scale": Refused(_COMPLETIONS_ONLY, (1, 1.0)),
        "chat_template": Refused(
            "the model's own template is used; chat_template_kwargs sets its variables"
        ),
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
        "output_config": Refused(_FORMAT),
        "previous_response_id": Refused("only /v1/responses has it"),
        "prompt": Refused("this endpoint takes a conversation or input"),
        "prompt_logprobs": Refused("use echo with logprobs at /v1/completions"),
        "response_format": Refused(_FORMAT),
        "return_token_ids": Refused("use return_tokens at /completion"),
        "return_tokens_as_token_ids": Refused("use return_tokens at /completion"),
        "stop_sequences": Refused("use stop"),
        "structural_tag": Refused("use a grammar"),
        "suffix": Refused(_COMPLETIONS_ONLY),
        "system": Refused(_SYSTEM),
        "system_prompt": Refused(_SYSTEM),
        "template": Refused("the model's own template is used"),
        "text": Refused(_FORMAT, ({"format": {"type": "text"}},)),
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
    """What an endpoint with this body does with a parameter."""
    if name in body.model_fields:
        return "honoured"
    return "refused" if name in REFUSED else "warning"


def check_parameters(body: BaseModel, record: AccessRecord, options: ServerOptions) -> None:
    """Refuse parameters of a body that the endpoint does not have, or note warnings about them."""
    unknown = list(body.model_extra or ())
    for name in unknown:
        refused = REFUSED.get(name)
        value = (body.model_extra or {})[name]
        if refused is not None and not _is_any_of(value, (*_NOTHING, *refused.neutral)):
            raise ApiError(400, f"{name} is not supported here: {refused.reason}", param=name)
    names = [name for name in unknown if name not in REFUSED]
    if names and options.strict_parameters:
        raise ApiError(400, _unknown(body, names[0]), param=names[0])
    record.ignored = [name[:_LONGEST_NAME] for name in names[:_MOST_WARNINGS]]
    record.warnings = [f"{_unknown(body, name)} It was ignored." for name in record.ignored]
    if len(names) > _MOST_WARNINGS:
        record.warnings.append(f"{len(names) - _MOST_WARNINGS} more parameters were ignored.")


def _is_any_of(value: object, others: tuple[object, ...]) -> bool:
    return any(type(value) is type(other) and value == other for other in others)


def _unknown(body: BaseModel, name: str) -> str:
    nearest = get_close_matches(name[:_LONGEST_NAME], type(body).model_fields, 1)
    hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
    return f"{name[:_LONGEST_NAME]!r} is not a parameter of this endpoint.{hint}"
