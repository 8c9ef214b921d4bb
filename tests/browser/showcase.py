"""A showcase: runs in every state and outputs of every kind, for screenshots and for tests that want much to look at.

The invariant: everything goes in by the API, as orchestrators and workers would do it.
"""

import asyncio
from typing import Any

import httpx

from tests.contract.pipeline import Pipeline, bearer, blueprint_of, dumped

PLAN = {
    "goal": "Answer support mail within the hour",
    "milestones": [
        {"name": "Sort incoming mail", "owner": "triage", "days": 3, "risks": []},
        {"name": "Draft answers from the handbook", "owner": "writer", "days": 8, "risks": ["outdated chapters"]},
        {"name": "Review before sending", "owner": "reviewer", "days": 2, "risks": ["two languages", "legal terms"]},
    ],
    "budget": {"tokens": 1_200_000, "reserve": 0.15},
    "approved": True,
}
REPORT = """# Weekly report

**31 mails** came in, 28 were answered within the hour.

| queue | mails | median |
|---|---:|---:|
| billing | 14 | 11 min |
| delivery | 12 | 19 min |
| other | 5 | 42 min |

1. Two answers cited a chapter that no longer exists.
2. The review step blocked one draft; its second attempt passed.

> The handbook should say what to do with mails in two languages.

```python
def is_urgent(mail: Mail) -> bool:
    return "today" in mail.subject.casefold()
```
"""
REVIEW = {"drafts": 28, "languages": ["de", "en"], "checked": {"tone": True, "facts": True, "links": 112}}
BLUEPRINT = blueprint_of(
    ("planner", "$.plan"),
    ("researcher", "$.research.notes"),
    ("writer", "$.draft"),
    ("reviewer", "$.review"),
    ("publisher", "$.report"),
    names={"writer": "draft-answers", "publisher": "weekly-report"},
)


async def fill(http: httpx.AsyncClient, pace_seconds: float = 0.0) -> Pipeline:
    """Fill a server, and return the run that is still going on.

    Args:
        http: a client on the server.
        pace_seconds: how long a step takes; 0 for as fast as it goes.
    """
    await _failed(http)
    done = await _support(http, pace_seconds)
    await done.finish(result={"plan": PLAN, "report": {"published": True, "mails": 31}})
    await _untitled(http)
    going_on = await _support(http, pace_seconds, until="reviewer")
    await going_on.dispatch("reviewer", "Review the drafts again.")
    return going_on


async def _support(http: httpx.AsyncClient, pace_seconds: float, until: str = "publisher") -> Pipeline:
    run = await Pipeline.create(http, BLUEPRINT, goal="Answer support mail within the hour")
    planner = await run.dispatch("planner", "Plan it.")
    await asyncio.sleep(pace_seconds)
    await run.result(planner, PLAN)
    researchers = [await run.dispatch("researcher", f"Read chapter {chapter}.") for chapter in range(1, 4)]
    for number, researcher in enumerate(researchers):
        await asyncio.sleep(pace_seconds * 0.7)
        await run.result(researcher, {"chapter": number + 1, "notes": [f"note {note}" for note in range(40)]})
    usage = {"input_tokens": 18_250, "output_tokens": 1_904}
    stats = {"worker_kind": "agent", "model": "small-1", "num_turns": 4, "usage": usage}
    await _post(http, researchers[0], "stats", stats)
    writer = await run.dispatch("writer", "Draft the answers.")
    await run.stage(writer, "style-guide.md", "# Style\n\nShort sentences.")
    await asyncio.sleep(pace_seconds * 1.4)
    await run.submit(writer, REPORT)
    reviewer = await run.dispatch("reviewer", "Review the drafts.")
    await asyncio.sleep(pace_seconds)
    await run.result(reviewer, REVIEW | {"verdict": "blocked", "remarks": ["chapter 7 is no more"]}, ok=False)
    await _post(
        http, reviewer, "degradation",
        {"tool": "translate", "error": "the service timed out", "fallback": "reviewed the English drafts alone"},
    )  # fmt: skip
    if until == "reviewer":
        return run
    again = await run.retry(reviewer)
    await asyncio.sleep(pace_seconds)
    await run.result(again, REVIEW | {"verdict": "pass", "remarks": [], "reviewed_by": "reviewer-2"})
    await run.output("publisher", {"published": True, "mails": 31})
    return run


async def _failed(http: httpx.AsyncClient) -> None:
    run = await Pipeline.create(http, goal="Migrate the invoices to the new ledger")
    await run.output("export-invoices", [{"invoice": number, "amount": number * 12.5} for number in range(300)])
    await run.dispatch("check totals")
    await run.finish("failed", error="the ledger refused 3 of 300 invoices: see the step 'check totals'")


async def _untitled(http: httpx.AsyncClient) -> None:
    run = await Pipeline.create(http)
    for name in ("a/b", "..", "<script>alert(1)</script>", "計画", "content"):
        await run.output(name, f"what {name} put out")
    await run.finish("cancelled")


async def _post(http: httpx.AsyncClient, dispatched: Any, route: str, document: dict[str, Any]) -> None:
    answer = await http.post(f"/v1/worker/{route}", content=dumped(document), headers=bearer(dispatched))
    assert answer.status_code == 204, answer.text
