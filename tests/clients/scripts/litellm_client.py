import json

import litellm
from common import HELLO, KEY, LONG, PERSON, SCHEMA, URL, WEATHER, error_of, get_weather, tell, user

litellm.suppress_debug_info = True


def ask(text_or_messages, **fields):
    messages = user(text_or_messages) if isinstance(text_or_messages, str) else text_or_messages
    return litellm.completion(
        model="openai/any", api_base=f"{URL}/v1", api_key=KEY, messages=messages, **fields
    )


def chat():
    return ask(HELLO).choices[0].message.content


def chat_ollama():
    done = litellm.completion(
        model="ollama_chat/any",
        api_base=URL,
        messages=user(HELLO),
        headers={"Authorization": f"Bearer {KEY}"},
    )
    return done.choices[0].message.content


def stream():
    return "".join(chunk.choices[0].delta.content or "" for chunk in ask(HELLO, stream=True))


def structured():
    form = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA}}
    return json.loads(ask(PERSON, response_format=form).choices[0].message.content)


def tools():
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    offered = [{"type": "function", "function": {"name": "get_weather", "parameters": schema}}]
    message = ask(WEATHER, tools=offered).choices[0].message
    (call,) = message.tool_calls
    result = get_weather(**json.loads(call.function.arguments))
    said = {"role": "tool", "tool_call_id": call.id, "content": result}
    answer = ask([*user(WEATHER), message.model_dump(), said], tools=offered)
    return answer.choices[0].message.content


def error():
    return error_of(lambda: ask(LONG))


tell(chat, chat_ollama, stream, structured, tools, error)
