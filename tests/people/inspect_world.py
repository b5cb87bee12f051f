"""The real Inspect with the models and questions of `world`, each asked three times."""

from collections import Counter
from pathlib import Path

from tests.people import world

#: Questions of the tasks that Inspect is given: multiple choice, generated numbers.
TASKS = {"mcq_sim": 24, "math_sim": 16}


def asked_questions() -> list[world.Question]:
    """Those of `TASKS`, the first ones of each."""
    every = world.questions().values()
    return [x for x in every if x.number < TASKS.get(x.task, 0)]


def task_of(name: str):
    """A task as Inspect Evals has them: `multiple_choice`, or `match` of a number."""
    from inspect_ai import Task
    from inspect_ai.dataset import Sample
    from inspect_ai.scorer import choice, match
    from inspect_ai.solver import generate, multiple_choice

    asked = [x for x in asked_questions() if x.task == name]
    if name == "mcq_sim":
        samples = [
            Sample(
                id=x.number,
                input=x.text,
                choices=[f"option {y}" for y in world.LETTERS],
                target=x.key,
            )
            for x in asked
        ]
        return Task(
            dataset=samples, solver=multiple_choice(), scorer=choice(), name=name
        )
    samples = [Sample(id=x.number, input=x.text, target=x.key) for x in asked]
    scorer = match(numeric=True)
    return Task(dataset=samples, solver=generate(), scorer=scorer, name=name)


def model_of(name: str):
    """A mock model whose answers are those of `world`."""
    from inspect_ai.model import ModelOutput, ModelUsage, get_model

    path, asked = f"mockllm/{name}", Counter()

    def outputs(messages, tools, tool_choice, config):
        text = messages[-1].text
        (question,) = [
            world.questions()[line.strip()]
            for line in text.splitlines()
            if line.strip() in world.questions()
        ]
        given = world.answer(name, question, asked[question.text])
        asked[question.text] += 1
        said = f"ANSWER: {given}" if question.task == "mcq_sim" else f"It is {given}"
        output = ModelOutput.from_content(path, said)
        # Inspect would load a tokenizer to count.
        output.usage = ModelUsage(input_tokens=7, output_tokens=3, total_tokens=10)
        return output

    return get_model(path, custom_outputs=outputs, memoize=False)


def evaluate(
    folder: Path, model: str, ids=None, epochs: int = 3, names=tuple(TASKS)
) -> None:
    """What `inspect eval TASK --epochs 3 --sample-id IDS` does."""
    import inspect_ai

    for name in names if ids is None else ids:
        (log,) = inspect_ai.eval(
            task_of(name),
            model=model_of(model),
            log_dir=str(folder),
            display="none",
            epochs=epochs,
            sample_id=None if ids is None else ids[name],
        )
        assert log.status == "success"
