"""The Markdown report of the demo, and the checks that a review makes of it.

The invariant: a review's verdict follows from what the report says; nothing is blocked for show.
"""

from typing import Any

LEFT_OUT = "What was left out"


def write_report(
    inventory: dict[str, Any],
    sizes: list[dict[str, Any]],
    longest: dict[str, Any],
    demanded: list[str],
) -> str:
    """Write the report: what there is, in sections; ``demanded`` names those that a review found missing."""
    sections = [_summary(inventory, sizes), _languages(sizes), _functions(longest)]
    if LEFT_OUT in demanded:
        sections.append(_left_out(inventory, sizes, longest))
    return "\n\n".join(sections)


def review_report(report: str, part: str, inventory: dict[str, Any], measured: list[str]) -> dict[str, Any]:
    """Check a report against the inventory it is about.

    Args:
        report: the OUTPUT of the report's step.
        part: its staged part, which should be the same text.
        inventory: what the scan found.
        measured: the languages that the report should tell of.
    """
    checks = {
        "tells of every measured language": all(f"\n| {language} |" in report for language in measured),
        "counts as many files as the scan": f" holds {len(inventory['files'])} text files" in report,
        "its staged part is the same text": part.rstrip() == report.rstrip(),
        f"has a section “{LEFT_OUT}”": f"\n## {LEFT_OUT}\n" in report,
    }
    missing = [] if checks[f"has a section “{LEFT_OUT}”"] else [LEFT_OUT]
    return {
        "verdict": "pass" if all(checks.values()) else "blocked",
        "checks": [{"check": check, "passed": passed} for check, passed in checks.items()],
        "missing_sections": missing,
    }


def _summary(inventory: dict[str, Any], sizes: list[dict[str, Any]]) -> str:
    lines = sum(entry["lines"] for entry in sizes)
    size_bytes = sum(entry["size_bytes"] for entry in inventory["files"])
    return (
        f"# Source report\n\n`{inventory['folder']}` holds {len(inventory['files'])} text files "
        f"of {size_bytes:,} bytes in all; {lines:,} lines of them were measured."
    )


def _languages(sizes: list[dict[str, Any]]) -> str:
    rows = [
        f"| {entry['language']} | {entry['files']} | {entry['lines']:,} | {entry['code_lines']:,} "
        f"| {entry['comment_lines']:,} | {entry['blank_lines']:,} |"
        for entry in sorted(sizes, key=lambda entry: (-entry["lines"], entry["language"]))
    ]
    head = ["| language | files | lines | code | comments | blank |", "|---|--:|--:|--:|--:|--:|"]
    return "\n".join(["## Languages", "", *head, *rows])


def _functions(longest: dict[str, Any]) -> str:
    rows = [
        f"{rank}. `{function['name']}`, {function['lines']} lines, at `{function['path']}:{function['line']}`"
        for rank, function in enumerate(longest["functions"], start=1)
    ]
    return "\n".join(["## Longest functions", "", *(rows or ["None were found."])])


def _left_out(inventory: dict[str, Any], sizes: list[dict[str, Any]], longest: dict[str, Any]) -> str:
    measured = {entry["language"] for entry in sizes}
    rows = [f"- {count} files: {reason}" for reason, count in inventory["skipped"].items()]
    rows += [
        f"- {entry['files']} files in {entry['language']}: not measured"
        for entry in inventory["languages"]
        if entry["language"] not in measured
    ]
    rows += [f"- functions of `{path}`: not understood" for path in longest["not_understood"]]
    return "\n".join([f"## {LEFT_OUT}", "", *(rows or ["Nothing."])])
