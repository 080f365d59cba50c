import dspy
from common import KEY, LONG, URL, error_of, get_weather, tell

model = dspy.LM("openai/any", api_base=f"{URL}/v1", api_key=KEY, cache=False, num_retries=0)
dspy.configure(lm=model)


class Describe(dspy.Signature):
    """Describe a person."""

    question: str = dspy.InputField()
    name: str = dspy.OutputField()
    age: int = dspy.OutputField()


def chat():
    return model("Say hello.")[0]


def structured():
    done = dspy.Predict(Describe)(question="Who?")
    return {"name": done.name, "age": done.age}


def structured_json():
    with dspy.context(adapter=dspy.JSONAdapter()):
        done = dspy.Predict(Describe)(question="Who?")
    return {"name": done.name, "age": done.age}


async def stream():
    listener = dspy.streaming.StreamListener(signature_field_name="story")
    program = dspy.streamify(
        dspy.Predict("question -> story"), stream_listeners=[listener], async_streaming=True
    )
    return "".join(
        [
            part.chunk
            async for part in program(question="Say it.")
            if isinstance(part, dspy.streaming.StreamResponse)
        ]
    ).strip()


def tools():
    agent = dspy.ReAct("question -> answer", tools=[get_weather], max_iters=3)
    return agent(question="What is the weather in Rome?").answer


def error():
    return error_of(lambda: model(LONG))


tell(chat, structured, structured_json, stream, tools, error)
