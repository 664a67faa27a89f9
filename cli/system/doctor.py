"""`headstart doctor`: checks a system and prints how to fix each problem."""

from __future__ import annotations

import asyncio

import typer

from cli.support.options import Json, ServiceOptions
from cli.support.output import FAILURE, echo, put, show_json


def doctor(
    options: ServiceOptions,
    json: Json = False,
) -> None:
    """Check services, topics, schema, versions, disk and clock; print how to fix each problem.

    Changes nothing. A finding is ok, a warning or an error; exits with 1 if there is an error.

    Example: headstart doctor --kafka broker:9092
    """
    from cli.support.targets import target_of
    from console.inspection.doctor.findings import ERROR, OK, WARNING
    from console.inspection.doctor.run import diagnose

    findings = asyncio.run(diagnose(target_of(options.read())))
    errors = sum(each.level == ERROR for each in findings)
    if json:
        found = [{**each._asdict(), "state": each.state} for each in findings]
        show_json({"findings": found, "wrong": errors})
    else:
        for each in findings:
            put(f"{each.level:7}  {each.check:9}  {each.what}")
            if each.remedy and each.level != OK:
                put(f"{'':20}fix: {each.remedy}")
    warnings = sum(each.level == WARNING for each in findings)
    echo(f"errors: {errors}, warnings: {warnings}")
    if errors:
        raise typer.Exit(FAILURE)
