import json

from common import HELLO, KEY, LONG, PERSON, SCHEMA, URL, WEATHER, error_of, get_weather, tell, user
from ollama import Client

client = Client(host=URL, headers={"Authorization": f"Bearer {KEY}"})


def chat():
    return client.chat("any", user(HELLO)).message.content


def stream():
    return "".join(part.message.content for part in client.chat("any", user(HELLO), stream=True))


def structured():
    return json.loads(client.chat("any", user(PERSON), format=SCHEMA).message.content)


def tools():
    messages = user(WEATHER)
    while True:
        message = client.chat("any", messages, tools=[get_weather]).message
        if not message.tool_calls:
            return message.content
        messages.append(message)
        for call in message.tool_calls:
            result = get_weather(**call.function.arguments)
            messages.append({"role": "tool", "tool_name": call.function.name, "content": result})


def error():
    return error_of(lambda: client.chat("any", user(LONG)))


tell(chat, stream, structured, tools, error)
