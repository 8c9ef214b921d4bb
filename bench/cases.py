"""Cases: what is measured against what, and what it should reach.

The invariant: a case is checked before it is measured, and stands next to its baseline in every round.

A suite starts its servers, seeds them and returns its cases; a part that is not installed leaves them out, and says so.
"""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from bench import checks
from bench.cluster import find_postgres
from bench.crowd import BYTES_PER_RUN, Crowd, seed_crowd
from bench.documents import body_of, document, table_document
from bench.load import Drive, drive_all
from bench.probes import LoadProbe, Probe, better_of, commits, load_probe, parse_twice
from bench.ratios import Target
from bench.seed import NewRun, SeededRun, seed
from bench.servers import Server, Stage

CLIENTS = 32
KIB, MIB = 1024, 1024 * 1024

Quantity = Literal["rate", "p99_ms"]


@dataclass(frozen=True)
class Case:
    """One line of the table.

    ``quantity`` is what the ratio is of. ``memory_target``, where there is one, makes a line of its own: how much the
    server grows for each connection.
    """

    name: str
    subject: Probe
    baseline: Probe
    target: Target | None = None
    quantity: Quantity = "rate"
    memory_target: Target | None = None


@dataclass(frozen=True)
class Bench:
    """What every suite needs: the stage, the bare answer, and how thoroughly to measure."""

    stage: Stage
    bare: LoadProbe
    is_quick: bool
    runs: int
    say: Callable[[str], None]


Suite = Callable[[Bench], list[Case]]


def reads(bench: Bench) -> list[Case]:
    """Lists, one step, its content, a 304 and a prompt, against the bare answer."""
    lengths = (10, 100, 1_000)
    wanted = {str(length): _run_of(length, KIB) for length in lengths}
    wanted["100"] = wanted["100"]._replace(waiting=1)
    wide = None if bench.is_quick else _run_of(1_000, 100 * KIB)
    seeded, server = _start(bench, "reads", wanted | ({} if wide is None else {"wide": wide}))
    lists = {length: _list_probe(server, seeded[str(length)]) for length in lengths}
    targets = {10: Target(0.35, 0.50), 100: Target(0.15, 0.22), 1_000: Target(0.020, 0.030)}
    cases = [Case(f"list of {length:,}", lists[length], bench.bare, targets[length]) for length in lengths]
    if wide is not None:
        probe = _list_probe(server, seeded["wide"])
        cases.append(Case("list of 1,000, bodies of 100 KiB vs 1 KiB", probe, lists[1_000], Target(0.90, 0.97)))
    cases += [*_point_reads(bench, server, seeded["10"]), _prompt(bench, server, seeded["100"])]
    return cases if bench.is_quick else [*cases, *_first_reads(bench, server, seeded, targets)]


def bodies(bench: Bench) -> list[Case]:
    """Large contents against a static file, and a path into one against parsing it."""
    sizes = {"100 KiB": 100 * KIB, "2 MiB": 2 * MIB}
    table = table_document(MIB, 5_000)
    values = {name: document(name, size) for name, size in sizes.items()} | {"table": table}
    seeded, server = _start(bench, "bodies", {"run": NewRun(values)})
    run = seeded["run"]
    path = run.content_path("table") + "?path=$.rows[{}].name"
    checks.check_value(server.url + path.format(2500), "row 2500")
    along = load_probe("?path=", server, _first_drive(server, path, 1, 5_000))
    path = Case("?path= into 1 MiB, first read, one client", along, parse_twice(run.bodies["table"]), Target(1.0, 2.0))
    return [*_files(bench, server, run, sizes), path]


def writes(bench: Bench) -> list[Case]:
    """Submits against plain commits, and reads beside them against reads alone."""
    seeded, server = _start(bench, "writes", {"run": NewRun({"read": document("read", KIB)}, waiting=256)})
    run = seeded["run"]
    submits = _Submits(bench, server, run)
    plain = commits(bench.stage, bench.stage.folder / "plain.db", submits.body)
    one, many = (load_probe("submits", server, submits.drive(server, clients)) for clients in (1, CLIENTS))
    cases = [
        Case("submit 1 KiB, 1 client", one, plain, Target(0.25, 0.33)),
        Case(f"submit 1 KiB, {CLIENTS} clients", many, plain, Target(0.7, 1.2)),
        _mix(server, run, submits),
    ]
    if not bench.is_quick:
        cases.append(_shared_submits(bench, many, submits))
    return cases


def processes(bench: Bench) -> list[Case]:
    """Two server processes on one database file against one."""
    seeded, first = _start(bench, "processes", {"run": _run_of(10, KIB)})
    second = bench.stage.start_stepplane(_sqlite_url(bench, "processes"))
    path = seeded["run"].content_path("step-0000")
    checks.check_content(second.url + path, seeded["run"].bodies["step-0000"])
    one = load_probe("one process", first, Drive(first.url + path, CLIENTS))
    drives = tuple(Drive(server.url + path, CLIENTS // 2) for server in (first, second))
    return [Case("content 1 KiB, 2 processes vs 1", LoadProbe("two processes", drives, (first, second)), one)]


def postgres(bench: Bench) -> list[Case]:
    """The same reads on PostgreSQL, against the bare answer."""
    url = find_postgres(bench.stage)
    if url is None:
        bench.say("PostgreSQL is left out: BENCH_DATABASE_URL is not set, and no server is installed")
        return []
    run = seed(url, {"run": _run_of(10, KIB)})["run"]
    server = bench.stage.start_stepplane(url)
    lists = Case("PostgreSQL: list of 10", _list_probe(server, run), bench.bare)
    step, content, _ = _point_reads(bench, server, run, "PostgreSQL: ", Target(0.08, 0.12))
    return [lists, step, content]


def crowd(bench: Bench) -> list[Case]:
    """The same reads in a database of very many outputs, against one of few; many runs by turns in both."""
    folder = bench.stage.folder
    runs = min(bench.runs, shutil.disk_usage(folder).free // BYTES_PER_RUN // 2)
    bench.say(f"seeding {runs:,} runs")
    few, many = seed_crowd(folder / "few.db", 100), seed_crowd(folder / "many.db", runs)
    servers = [bench.stage.start_stepplane(each.database_url) for each in (few, many)]
    outputs = runs * 10
    cases = []
    for what, paths_of in _CROWD_PATHS.items():
        probes = [
            _turns(bench, what, each, server, paths_of) for each, server in zip((few, many), servers, strict=True)
        ]
        cases.append(Case(f"{what}, {outputs:,} outputs vs 1,000", probes[1], probes[0], Target(1 / 1.3, 1 / 1.1)))
    return cases


SUITES: Mapping[str, Suite] = {
    "reads": reads,
    "bodies": bodies,
    "writes": writes,
    "processes": processes,
    "postgres": postgres,
    "crowd": crowd,
}
QUICK_SUITES = ("reads", "bodies", "writes", "processes")


# --- reads ---------------------------------------------------------------------------------------


def _run_of(length: int, body_bytes: int) -> NewRun:
    return NewRun({name: document(name, body_bytes) for name in (f"step-{number:04}" for number in range(length))})


def _sqlite_url(bench: Bench, name: str) -> str:
    return f"sqlite:///{bench.stage.folder / name}.db"


def _start(bench: Bench, name: str, wanted: Mapping[str, NewRun]) -> tuple[dict[str, SeededRun], Server]:
    bench.say(f"seeding {name}")
    url = _sqlite_url(bench, name)
    return seed(url, wanted), bench.stage.start_stepplane(url)


def _list_probe(server: Server, run: SeededRun) -> LoadProbe:
    url = server.url + run.steps_path
    checks.check_list(url, run.bodies)
    return load_probe(f"list of {len(run.bodies):,}", server, Drive(url, CLIENTS))


def _point_reads(
    bench: Bench, server: Server, run: SeededRun, prefix: str = "", content_target: Target | None = None
) -> list[Case]:
    """One step, its content, and a 304 of that."""
    name, body = next(iter(run.bodies.items()))
    step, content = server.url + run.step_path(name), server.url + run.content_path(name)
    checks.check_summary(step, body)
    checks.check_content(content, body)
    checks.check_not_modified(content, body)
    tag = (f"If-None-Match: {checks.etag(body)}",)
    drives = {
        "one step": (Drive(step, CLIENTS), None if prefix else Target(0.30, 0.45)),
        "content 1 KiB": (Drive(content, CLIENTS), content_target or Target(0.30, 0.45)),
        "304": (Drive(content, CLIENTS, headers=tag), None if prefix else Target(0.40, 0.65)),
    }
    return [
        Case(prefix + what, load_probe(what, server, drive), bench.bare, target)
        for what, (drive, target) in drives.items()
    ]


def _first_reads(
    bench: Bench, server: Server, seeded: Mapping[str, SeededRun], list_targets: Mapping[int, Target]
) -> list[Case]:
    """The same where nobody asked before, as while others write: nothing is remembered of any answer."""
    run = seeded["10"]
    name = next(iter(run.bodies))
    paths = {f"list of {length:,}": (seeded[str(length)].steps_path, target) for length, target in list_targets.items()}
    paths["one step"] = (run.step_path(name), Target(0.30, 0.45))
    paths["content 1 KiB"] = (run.content_path(name), Target(0.30, 0.45))
    return [
        Case(
            f"{what}, first read", load_probe(what, server, _first_drive(server, f"{path}?first={{}}")), bench.bare, aim
        )
        for what, (path, aim) in paths.items()
    ]


def _first_drive(server: Server, path: str, connections: int = CLIENTS, numbers: int = 2**53) -> Drive:
    """Ask each time for an address of its own: the server ignores a parameter that it does not know."""
    return Drive(server.url, connections, "first.lua", (path, str(numbers)))


def _prompt(bench: Bench, server: Server, run: SeededRun) -> Case:
    url, handle = server.url + "/v1/worker/prompt", next(iter(run.waiting.values()))
    checks.check_prompt(url, handle, run.bodies)
    drive = Drive(url, CLIENTS, headers=(f"Authorization: Bearer {handle}",))
    return Case("prompt with 100 pointers", load_probe("prompt", server, drive), bench.bare, Target(0.08, 0.12))


def _files(bench: Bench, server: Server, run: SeededRun, sizes: Mapping[str, int]) -> list[Case]:
    """Contents against nginx with the same bytes in a file, by sendfile or by read: whichever does more here."""
    folder = bench.stage.folder / "files"
    folder.mkdir()
    nginx = bench.stage.start_nginx(folder)
    if nginx is None:
        bench.say("contents of 100 KiB and 2 MiB are left out: nginx is not installed (apt-get install nginx-light)")
        return []
    targets = {"100 KiB": Target(0.35, 0.50), "2 MiB": Target(0.55, 0.75)}
    cases = []
    for name, size in sizes.items():
        (folder / str(size)).write_bytes(run.bodies[name])
        url = server.url + run.content_path(name)
        checks.check_content(url, run.bodies[name])
        ways = {"nginx, sendfile": "sent", "nginx, read": "read"}
        files = {said: f"{nginx.url}/{way}/{size}" for said, way in ways.items()}
        for file in files.values():
            checks.check_file(file, run.bodies[name])
        probes = [load_probe(said, nginx, Drive(file, CLIENTS)) for said, file in files.items()]
        memory = Target(2.0, 0.7, at_most=True) if size == 2 * MIB else None
        subject = load_probe(f"content {name}", server, Drive(url, CLIENTS))
        case = Case(f"content {name}", subject, better_of(probes, 1), targets[name], memory_target=memory)
        cases.append(case)
    return cases


# --- writes --------------------------------------------------------------------------------------


class _Submits:
    """Submits of one body with many handles by turns."""

    def __init__(self, bench: Bench, server: Server, run: SeededRun) -> None:
        self.body = body_of(document("submitted", KIB))
        step, handle = next(iter(run.waiting.items()))
        checks.check_submit(server.url + _SUBMIT, handle, self.body, server.url + run.content_path(step))
        self._handles, self._body = bench.stage.folder / "handles", bench.stage.folder / "body"
        self._handles.write_text("".join(f"{each}\n" for each in run.waiting.values()))
        self._body.write_bytes(self.body)

    def drive(self, server: Server, clients: int, pause_ms: int = 0, *, is_background: bool = False) -> Drive:
        """Write the load of so many clients, each with a pause before each submit."""
        arguments = (str(self._handles), str(self._body), str(pause_ms))
        return Drive(server.url + _SUBMIT, clients, "submits.lua", arguments, is_background=is_background)


_SUBMIT = "/v1/worker/submit"
_MIX_READERS, _MIX_WRITERS = 24, 8
_MIX_READS_PER_WRITE = 9


def _mix(server: Server, run: SeededRun, submits: _Submits) -> Case:
    """Reads with submits beside them, about one in ten: how much longer the slowest reads take."""
    read = Drive(server.url + run.content_path("read"), _MIX_READERS)
    checks.check_content(read.url, run.bodies["read"])
    reading, writing = drive_all((read, submits.drive(server, _MIX_WRITERS)), 1)
    pause_ms = pause_between(reading.rate / _MIX_READS_PER_WRITE, writing.rate, _MIX_WRITERS)
    write = submits.drive(server, _MIX_WRITERS, pause_ms, is_background=True)
    alone = load_probe("the same reads alone", server, read)
    target = Target(4, 2.5, at_most=True)
    return Case("p99 of reads, 1 submit in 10", LoadProbe("mix", (read, write), (server,)), alone, target, "p99_ms")


def pause_between(wanted_rate: float, unpaused_rate: float, clients: int) -> int:
    """Return how many milliseconds each client waits before each request, so that all together reach a lower rate."""
    return max(0, round((clients / wanted_rate - clients / unpaused_rate) * 1000))


def _shared_submits(bench: Bench, one: LoadProbe, submits: _Submits) -> Case:
    second = bench.stage.start_stepplane(_sqlite_url(bench, "writes"))
    servers = (*one.servers, second)
    drives = tuple(submits.drive(server, CLIENTS // 2) for server in servers)
    return Case(f"submit 1 KiB, {CLIENTS} clients, 2 processes vs 1", LoadProbe("two processes", drives, servers), one)


# --- the crowd -----------------------------------------------------------------------------------

_CROWD_PATHS: dict[str, Callable[[SeededRun], list[str]]] = {
    "list of 10": lambda run: [run.steps_path],
    "one step": lambda run: [run.step_path(name) for name in run.bodies],
    "content": lambda run: [run.content_path(name) for name in run.bodies],
}


def _turns(
    bench: Bench, what: str, seeded: Crowd, server: Server, paths_of: Callable[[SeededRun], list[str]]
) -> LoadProbe:
    for run in (seeded.read[0], seeded.read[-1]):
        checks.check_list(server.url + run.steps_path, run.bodies)
        for name, body in run.bodies.items():
            checks.check_summary(server.url + run.step_path(name), body)
            checks.check_content(server.url + run.content_path(name), body)
    file = bench.stage.folder / f"paths {what} {seeded.runs}"
    file.write_text("".join(f"{path}\n" for run in seeded.read for path in paths_of(run)))
    drive = Drive(server.url, CLIENTS, "reads.lua", (str(file),))
    return load_probe(f"{seeded.runs * 10:,} outputs", server, drive)
