"""`headstart doctor`: what is wrong, and how to mend it."""

from __future__ import annotations

import asyncio

import typer

from cli.support.options import Json, ServiceOptions
from cli.support.output import FAILURE, put, say, show_json


def doctor(
    options: ServiceOptions,
    json: Json = False,
) -> None:
    """Check services, topics, schema, versions, disk and clock; say how to mend what is wrong.

    Changes nothing. Exits with 0 where nothing is wrong, else with 1.

    Example: headstart doctor --kafka broker:9092
    """
    from cli.support.targets import target_of
    from console.inspection.doctor.findings import OK, WRONG
    from console.inspection.doctor.run import diagnose

    settings = options.read()
    findings = asyncio.run(diagnose(target_of(settings)))
    wrong = [each for each in findings if each.state == WRONG]
    if json:
        show_json({"findings": [each._asdict() for each in findings], "wrong": len(wrong)})
    else:
        for each in findings:
            put(f"{each.state:5}  {each.check:9}  {each.what}")
            if each.remedy and each.state != OK:
                put(f"{'':18}mend: {each.remedy}")
    say(f"{len(wrong)} wrong, see above" if wrong else "nothing is wrong")
    if wrong:
        raise typer.Exit(FAILURE)
