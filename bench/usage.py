"""Usage: the processor time and the memory of a process, as Linux tells them.

The invariant: only processes that this benchmark started are asked.

Source: proc(5), ``/proc/<pid>/stat``, ``status`` and ``clear_refs``.
"""

import os
import re
from pathlib import Path

MIB = 1024 * 1024

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """Return the processor time of a process so far: all its threads, in user and kernel mode."""
    return parse_cpu_ticks(_proc(pid, "stat").read_text()) / _TICKS_PER_SECOND


def resident_mib(pid: int) -> float:
    """Return the memory that a process holds now."""
    return parse_kib(_proc(pid, "status").read_text(), "VmRSS") / 1024


def peak_mib(pid: int) -> float:
    """Return the most memory that a process held since its start or :func:`reset_peak`."""
    return parse_kib(_proc(pid, "status").read_text(), "VmHWM") / 1024


def reset_peak(pid: int) -> None:
    """Let the peak be counted from now on."""
    _proc(pid, "clear_refs").write_text("5")


def parse_cpu_ticks(stat: str) -> int:
    """Read utime and stime from the line of ``stat``; the command's name in it may hold spaces and parentheses."""
    fields = stat.rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def parse_kib(status: str, key: str) -> int:
    """Read one size from ``status``.

    Raises:
        ValueError: it is not there.
    """
    found = re.search(rf"^{key}:\s+(\d+) kB$", status, re.MULTILINE)
    if found is None:
        message = f"no {key} in the status of the process"
        raise ValueError(message)
    return int(found[1])


def _proc(pid: int, name: str) -> Path:
    return Path("/proc") / str(pid) / name
