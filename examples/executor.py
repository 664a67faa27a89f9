"""A whole executor: guess the next tool, ask whether that is worth starting early, tell what came.

Run it beside `headstart up`:  python examples/executor.py KAFKA REDIS   (as `up` prints them)
"""

import sys

import headstart

RUNS = [["find_user", "get_order", "issue_refund"]] * 20
kafka, redis = sys.argv[1:3]

with headstart.Emitter(kafka) as emitter, headstart.Thresholds(redis) as thresholds:
    seen: dict[str, int] = {}
    for number, tools in enumerate(RUNS):
        run = {"workflow_type": "refund", "workflow_id": f"example-{number}", "user_id": "u7"}
        context = {"domain": "retail"}
        for step, tool in enumerate(tools):
            task = {**run, "task_id": str(step)}
            confidence = seen.get(tool, 0) / (number + 1)
            threshold = thresholds.get({**run, **context})
            speculate = confidence >= threshold.speculate  # start the guessed call now
            emitter.emit(
                {**task, "event_type": "speculation_start", "confidence": confidence},
                data={
                    "context": context,
                    "prediction": {"tool_id": tool, "speculated": speculate},
                },
            )
            emitter.emit(  # the real call has come: was the guess right, and what was it worth?
                {**task, "event_type": "task_complete", "tool_id": tool, "success": True},
                data={"context": context, "result": {"gain_ms": 400, "cost_ms": 600}},
            )
            seen[tool] = seen.get(tool, 0) + 1
    emitter.flush()
    print(f"{emitter.stats()['acknowledged']} events acknowledged")
