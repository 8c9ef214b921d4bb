"""Whatever orchestrator and workers do, in whatever order: what answers is what the contract's words say.

A state machine drives the server over HTTP, and the model of :mod:`tests.contract.answers_model` beside it.
"""

import asyncio
import hashlib
import json
import random
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack
from typing import Any, NamedTuple

import httpx
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from app.config import Settings
from app.domain.rendering import read_submission
from tests.contract.answers_model import BLUEPRINT, CANONICAL, TABLE, Answer, Final, Model, Step
from tests.contract.pipeline import Dispatched, Pipeline, bearer, code_of, dumped, serving

REFS = ["plan", "code", "review", "free", "a/b"]
PART_NAMES = ["notes.md", "data.json", "free", "draft", "a/b"]
KEYS = [*TABLE, *CANONICAL, "free", "a/b", "notes.md", "other"]

texts = st.sampled_from(["", "text", "```json\n1\n```", "é\u0000\u2028", "# part\n"])
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
values = scalars | st.lists(scalars, max_size=2) | st.dictionaries(texts, scalars, max_size=2)
keyed = st.fixed_dictionaries({}, optional={key: scalars | st.just({"text": "nested"}) for key in KEYS})
results = st.one_of(st.just([]), *[st.lists(each, min_size=1, max_size=1) for each in (keyed, keyed, values)])
"""A ``result_ref`` in a list; an empty one where the run ends without."""


class Ways(NamedTuple):
    """How to reach the server under test, and how to start it again."""

    runner: asyncio.Runner
    http: Callable[[], httpx.AsyncClient]
    restart: Callable[[], None]
    work_dir: str


class Run(NamedTuple):
    """One run under test, with its model."""

    pipeline: Pipeline
    model: Model


class Plane(RuleBasedStateMachine):
    """The server and the model, side by side: two runs of one task, so that nothing may mix."""

    ways: Ways

    def __init__(self) -> None:
        super().__init__()
        self.runs: list[Run] = []
        self.seed = 0
        self.age = 0

    @initialize(
        seed=st.integers(0, 2**32),
        has_table=st.booleans(),
        has_files=st.booleans(),
        refs=st.lists(st.sampled_from(REFS), max_size=6),
    )
    def create(self, seed: int, refs: list[str], *, has_table: bool, has_files: bool) -> None:
        self.seed = seed
        fields = {"work_dir": self.ways.work_dir} if has_files else {}
        first = self._do(Pipeline.create(self.ways.http(), BLUEPRINT if has_table else None, **fields))
        pipelines = [first, self._do(first.another_run())]
        self.runs = [Run(pipeline, Model(has_table=has_table)) for pipeline in pipelines]
        for number, ref in enumerate(["plan", "free", *refs]):
            self.dispatch(number % 2, ref, [number] if number % 3 else [])

    # --- the orchestrator ----------------------------------------------------------------------------

    @rule(which=st.integers(0, 1), ref=st.sampled_from(REFS), output=st.lists(values, max_size=1))
    def dispatch(self, which: int, ref: str, output: list[Any]) -> None:
        pipeline, model = self.runs[which]
        if model.is_over:
            self._is_gone(f"/v1/runs/{pipeline.run_id}/steps", {"ref": ref, "directive": 1})
            return
        dispatched = self._do(pipeline.dispatch(ref))
        name = model.canonical(ref)
        assert (dispatched["name"], dispatched["attempt"]) == (name, 1)
        for value in output:
            self._do(pipeline.result(dispatched, value))
        model.steps.setdefault(name, []).append(Step([dispatched], [[Final(value, ok=True) for value in output]]))

    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        (pipeline, model), step = self._any_step(data)
        if not model.is_over:
            again = self._do(pipeline.retry(step.dispatched[0]))
            step.dispatched.append(again)
            step.finals.append([])
            assert (again["step_id"], again["attempt"]) == (step.dispatched[0]["step_id"], len(step.dispatched))

    @rule(which=st.integers(0, 1), status=st.sampled_from(["done", "failed"]), result=results)
    def finish(self, which: int, status: str, result: list[Any]) -> None:
        pipeline, model = self.runs[which]
        if not model.is_over and self.age > _YOUNG:
            self._do(pipeline.finish(status, **({"result": result[0]} if result else {})))
            model.is_over, model.result = True, result

    @rule()
    def restart(self) -> None:
        if self.age % _YOUNG:
            return
        self.ways.restart()
        for run in self.runs:
            run.pipeline.http = self.ways.http()

    # --- the workers ---------------------------------------------------------------------------------

    @rule(data=st.data(), value=values, ok=st.booleans(), way=st.sampled_from(["result", "submit", "emit"]))
    def final(self, data: st.DataObject, value: Any, way: str, *, ok: bool) -> None:
        (pipeline, model), step = self._any_step(data)
        attempt = data.draw(st.integers(1, len(step.dispatched)), label="attempt")
        handle = step.dispatched[attempt - 1]
        if model.is_over:
            self._is_gone("/v1/worker/result", {"task_id": handle["step_id"], "value": value}, handle)
            return
        if way == "result":
            self._do(pipeline.result(handle, value, ok=ok))
        elif way == "emit":
            self._do(pipeline.emit(handle, {"type": "final", "content": _inline(value), "ok": ok}))
        else:
            value = {"submitted": value}
            self._do(pipeline.submit(handle, json.dumps(value), verdict="pass" if ok else "blocked"))
        step.finals[attempt - 1].append(Final(value, ok))

    @rule(data=st.data(), name=st.sampled_from(PART_NAMES), value=values)
    def stage(self, data: st.DataObject, name: str, value: Any) -> None:
        (pipeline, model), step = self._any_step(data)
        handle = step.dispatched[-1]
        if name == handle["name"]:
            return
        if model.is_over:
            self._is_gone(f"/v1/worker/artifact?name={name}", value, handle)
        else:
            if isinstance(value, str):
                self._do(pipeline.stage(handle, name, value))
            else:
                self._do(pipeline.emit(handle, {"type": "artifact", "name": name, "content": _inline(value)}))
            model.parts[name] = value

    @rule(
        data=st.data(), event=st.sampled_from([{"type": "partial", "chunk": "c"}, {"type": "progress", "stage": "s"}])
    )
    def sign_of_life(self, data: st.DataObject, event: dict[str, Any]) -> None:
        (pipeline, model), step = self._any_step(data)
        if not model.is_over:
            self._do(pipeline.emit(step.dispatched[-1], event))

    def _any_step(self, data: st.DataObject) -> tuple[Run, Step]:
        steps = [(run, step) for run in self.runs for each in run.model.steps.values() for step in each]
        chosen: tuple[Run, Step] = data.draw(st.sampled_from(steps), label="step")
        return chosen

    def _is_gone(self, url: str, document: Any, handle: Dispatched | None = None) -> None:
        headers = {} if handle is None else bearer(handle)
        answer = self._do(self.ways.http().post(url, content=dumped(document), headers=headers))
        assert code_of(answer) == (410, "run_finished")

    def _do(self, awaitable: Coroutine[Any, Any, Any]) -> Any:
        return self.ways.runner.run(awaitable)

    # --- what is read --------------------------------------------------------------------------------

    @invariant()
    def what_is_listed_is_what_the_words_say(self) -> None:
        self.age += 1
        for pipeline, model in self.runs:
            expected = model.answers()
            listed = self._do(pipeline.steps())
            assert [step["name"] for step in listed] == sorted(expected, key=str.encode)
            for step in listed:
                value, told = expected[step["name"]]
                assert {field: step[field] for field in told} == told, step
                if step["kind"] == "step" and not step["truncated"]:
                    assert _text(_parse(step, step["preview"].encode())) == _text(value)

    @rule(which=st.integers(0, 1), name=st.sampled_from(sorted({*KEYS, *PART_NAMES, *REFS})))
    def read(self, which: int, name: str) -> None:
        pipeline, model = self.runs[which]
        expected = model.answers().get(model.canonical(name))
        if expected is None:
            assert code_of(self._do(pipeline.get(name, "/content"))) == (404, _refusal(model, name))
            return
        self._answers(pipeline, name, expected, format="json")
        for occurrence, step in enumerate(model.steps.get(model.canonical(name), []), 1):
            for attempt, finals in enumerate(step.finals, 1):
                query = {"occurrence": occurrence, "attempt": attempt}
                if finals:
                    self._answers(pipeline, name, Answer(finals[-1].value, query | {"ok": finals[-1].ok}), **query)
                else:
                    assert self._do(pipeline.get(name, "/content", **query)).status_code == 404

    def _answers(self, pipeline: Pipeline, name: str, expected: Answer, **query: Any) -> None:
        step, body = self._do(pipeline.step(name, **query)), self._do(pipeline.content(name, **query))
        assert {field: step[field] for field in expected.told} == expected.told
        assert (step["size_bytes"], step["sha256"]) == (len(body), hashlib.sha256(body).hexdigest())
        assert _text(_parse(step, body)) == _text(expected.value)

    def teardown(self) -> None:
        """End the runs that go on, and read everything a last time."""
        for which, run in enumerate(self.runs):
            self.age += _YOUNG
            picks = random.Random(f"{self.seed} {which}")  # noqa: S311 - it chooses keys
            self.finish(which, "done", [{key: picks.choice(ENDS) for key in KEYS if picks.random() < _HALF}])
            answer = self._do(run.pipeline.get("_ctx", "/content"))
            if run.model.result:
                assert _text(answer.json()) == _text(run.model.result[0])
            else:
                assert code_of(answer) == (404, "step_not_found")
            for name in CANONICAL:
                self.read(which, name)
        if self.runs:
            self.what_is_listed_is_what_the_words_say()


def _refusal(model: Model, name: str) -> str:
    """Tell what a name that nothing answers for is refused with: a step under way is told from a wrong name."""
    return "step_not_submitted" if model.steps.get(model.canonical(name)) else "step_not_found"


def _parse(step: dict[str, Any], body: bytes) -> Any:
    is_file = step["content_type"].startswith("text/markdown")
    return json.loads(read_submission(body) if is_file else body)


def _text(value: Any) -> str:
    """Write a value so that 1, 1.0 and true are three."""
    return json.dumps(value, sort_keys=True)


def _inline(value: Any) -> dict[str, Any]:
    return {"kind": "inline", "value": value}


@pytest.fixture
def ways(database_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ways]:
    """A server on a database of this test."""
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        clients: list[httpx.AsyncClient] = []

        def restart() -> None:
            runner.run(stack.aclose())
            clients[:] = [runner.run(stack.enter_async_context(serving(Settings(database_url=database_url))))]

        restart()
        yield Ways(runner, lambda: clients[0], restart, str(tmp_path_factory.mktemp("work")))
        runner.run(stack.aclose())


EXAMPLES = {"sqlite": 25, "postgresql": 5}
ENDS = [None, 1, "text", {"text": "nested"}, [1]]
_HALF = 0.5
_YOUNG = 5
"""Steps before a run may end, and between two restarts: a machine that ends at once shows little."""


def test_what_answers_is_what_the_contract_says(ways: Ways, dialect: str) -> None:
    """Over dispatches, retries, loops, submits, parts, ends and restarts: value, source and counts are the model's."""

    class Driven(Plane):
        pass

    Driven.ways = ways
    run_state_machine_as_test(
        Driven,
        settings=settings(
            max_examples=EXAMPLES[dialect],
            stateful_step_count=25,
            phases=[Phase.generate, Phase.shrink],
            derandomize=True,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
