"""A whole executor: guess the next tool, ask whether it is worth starting early, report the result.

Run it beside `headstart up`:  python examples/executor.py KAFKA REDIS   (as `up` prints them)
"""

import sys

import headstart

RUNS = [["find_user", "get_order", "issue_refund"]] * 20
kafka, redis = sys.argv[1:3]

with headstart.Emitter(kafka) as emitter, headstart.Thresholds(redis) as thresholds:
    seen: dict[str, int] = {}
    for number, tools in enumerate(RUNS):
        with headstart.workflow(
            workflow_type="refund",
            workflow_id=f"example-{number}",
            user_id="u7",
            context={"domain": "retail"},
            emitter=emitter,
        ) as run:
            for step, tool in enumerate(tools):
                confidence = seen.get(tool, 0) / (number + 1)
                threshold = thresholds.get(workflow_type="refund", domain="retail", user_id="u7")
                speculate = confidence >= threshold.speculate  # start the guessed call now
                run.emit(
                    headstart.speculation_start(
                        task_id=str(step), guess=tool, confidence=confidence, speculated=speculate
                    )
                )
                run.emit(  # the real call has come: was the guess right, and what was it worth?
                    headstart.task_complete(
                        task_id=str(step), tool_id=tool, success=True, gain_ms=400, cost_ms=600
                    )
                )
                seen[tool] = seen.get(tool, 0) + 1
    emitter.flush()
    print(f"{emitter.stats()['acknowledged']} events acknowledged")
