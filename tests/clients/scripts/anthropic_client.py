import json

from anthropic import Anthropic, beta_tool
from common import HELLO, KEY, LONG, PERSON, SCHEMA, URL, WEATHER, error_of, get_weather, tell, user

client = Anthropic(base_url=URL, api_key=KEY, max_retries=0)


def ask(text, **fields):
    return client.messages.create(model="any", max_tokens=500, messages=user(text), **fields)


def chat():
    return ask(HELLO).content[0].text


def stream():
    with client.messages.stream(model="any", max_tokens=500, messages=user(HELLO)) as events:
        return "".join(events.text_stream)


def structured():
    form = {"format": {"type": "json_schema", "schema": SCHEMA}}
    return json.loads(ask(PERSON, output_config=form).content[0].text)


def tools():
    runner = client.beta.messages.tool_runner(
        model="any", max_tokens=500, messages=user(WEATHER), tools=[beta_tool(get_weather)]
    )
    return runner.until_done().content[0].text


def error():
    return error_of(lambda: ask(LONG))


tell(chat, stream, structured, tools, error)
