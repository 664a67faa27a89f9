"""`headstart doctor`: what is wrong, and how to mend it."""

from __future__ import annotations

import asyncio

import typer

from cli.options import Data, Json, Kafka, Postgres, Redis
from cli.output import FAILURE, printable, say, show_json


def doctor(
    kafka: Kafka = None,
    postgres: Postgres = None,
    redis: Redis = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Check services, topics, schema, versions, disk and clock; say how to mend what is wrong.

    Changes nothing. Exits with 0 where nothing is wrong, else with 1.

    Example: headstart doctor --kafka broker:9092
    """
    from cli.targets import target_of
    from settings import read_settings
    from watching.doctor.diagnosing import diagnose
    from watching.doctor.findings import OK, WRONG

    settings = read_settings(kafka=kafka, postgres=postgres, redis=redis, data=data)
    findings = asyncio.run(diagnose(target_of(settings)))
    wrong = [each for each in findings if each.state == WRONG]
    if json:
        show_json({"findings": [each._asdict() for each in findings], "wrong": len(wrong)})
    else:
        for each in findings:
            print(printable(f"{each.state:5}  {each.check:9}  {each.what}"))
            if each.remedy and each.state != OK:
                print(printable(f"{'':18}mend: {each.remedy}"))
    say(f"{len(wrong)} wrong, see above" if wrong else "nothing is wrong")
    if wrong:
        raise typer.Exit(FAILURE)
