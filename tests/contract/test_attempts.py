"""Wrong bearers: their answers wait longer and longer, and nobody else's do."""

import asyncio

import httpx
import pytest
from pydantic import SecretStr, ValidationError

from app.config import Settings
from app.domain import limits
from app.domain.errors import TooManyAttempts
from app.services.attempts import Attempts
from tests.contract.pipeline import code_of, serving

TOKEN = "an-operators-token-4711"


def test_an_operator_token_of_fifteen_characters_is_refused() -> None:
    """Sixteen are taken, one fewer is told what it lacks, and the token stands in no message."""
    Settings(operator_token=SecretStr("x" * 16))
    with pytest.raises(ValidationError, match="at least 16 characters") as error:
        Settings(operator_token=SecretStr("x" * 15))
    assert "x" * 15 not in str(error.value)


def test_the_wait_grows_from_the_sixth_failure_on_and_ends_at_its_bound() -> None:
    """Five are answered at once; then each waits twice as long as the one before, up to ten seconds."""
    attempts = Attempts(clock=lambda: 0.0)
    waits = [attempts.note("192.0.2.1") for _ in range(5_000)]
    assert waits[:5] == [0.0] * 5
    assert waits[5:12] == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 10.0]
    assert set(waits[12:]) == {10.0}


def test_addresses_are_counted_apart() -> None:
    """Another address is not delayed; another one of the same IPv6 network is the same client."""
    attempts = Attempts(clock=lambda: 0.0)
    for _ in range(6):
        attempts.note("192.0.2.1")
        attempts.note("2001:db8::1")
    assert attempts.note("192.0.2.2") == 0.0
    assert attempts.note("2001:db8::2") > 0.0
    assert attempts.note("2001:db8:0:1::1") == 0.0


def test_failures_are_forgotten() -> None:
    """After ten minutes without one an address starts anew."""
    now = [0.0]
    attempts = Attempts(clock=lambda: now[0])
    for _ in range(20):
        attempts.note("192.0.2.1")
    now[0] = float(limits.LOGIN_MEMORY_SECONDS.value)
    assert attempts.note("192.0.2.1") == 0.0


def test_the_table_is_bounded() -> None:
    """A client with a million addresses fills no memory: the one that failed longest ago goes first."""
    attempts = Attempts(clock=lambda: 0.0)
    for _ in range(6):
        attempts.note("first")
    for number in range(limits.LOGIN_ADDRESSES.value):
        attempts.note(str(number))
    assert len(attempts._records) == limits.LOGIN_ADDRESSES.value
    assert attempts.note("first") == 0.0


async def test_beyond_what_may_wait_there_is_an_answer_at_once() -> None:
    """A flood piles nothing up: the 101st is told when to come again."""
    attempts = Attempts(max_waiting=100, clock=lambda: 0.0)
    for _ in range(30):
        attempts.note("192.0.2.1")
    waiting = [asyncio.create_task(attempts.fail("192.0.2.1")) for _ in range(100)]
    await asyncio.sleep(0)
    with pytest.raises(TooManyAttempts):
        await attempts.fail("192.0.2.1")
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert attempts._waiting == 0


async def test_the_right_token_never_waits(database_url: str) -> None:
    """While hundreds of wrong ones of its own address do, by bearer and by login; those beyond the bound are 429."""
    async with serving(
        Settings(database_url=database_url, operator_token=SecretStr(TOKEN), login_delay_seconds=10)
    ) as http:

        async def guess(number: int) -> httpx.Response:
            if number % 2:
                return await http.post("/ui/login", data={"token": f"wrong{number}"})
            return await http.get("/v1/tasks", headers={"Authorization": f"Bearer wrong{number}"})

        guesses = [asyncio.create_task(guess(number)) for number in range(300)]
        answered = iter(asyncio.as_completed(guesses))
        for _ in range(200):
            await next(answered)
        right = {"Authorization": f"Bearer {TOKEN}"}
        assert (await http.get("/v1/tasks", headers=right)).status_code == 200
        assert (await http.post("/ui/login", data={"token": TOKEN})).status_code == 303
        assert not all(task.done() for task in guesses)
        refused = [task.result() for task in guesses if task.done() and task.result().status_code == 429]
        assert refused
        assert all(answer.headers["retry-after"] == "10" for answer in refused)
        told = next(answer for answer in refused if answer.headers["content-type"] == "application/json")
        assert code_of(told) == (429, "too_many_attempts")
        for task in guesses:
            task.cancel()
        await asyncio.gather(*guesses, return_exceptions=True)
