"""The embedded local stack: broker, Postgres and Redis as child processes.

    with Stack(StackConfig(data=Path(".headstart"))) as stack:
        print(stack.addresses.kafka, stack.addresses.postgres, stack.addresses.redis)

Only the names listed here are public. `deploy.system` adds topics, tables and workers.
"""

from deploy.local.config import Addresses, StackConfig
from deploy.local.data_dir_lock import RunningStack, running
from deploy.local.errors import AlreadyRunning, StackError
from deploy.local.stack import Stack

__all__ = [
    "Addresses",
    "AlreadyRunning",
    "RunningStack",
    "Stack",
    "StackConfig",
    "StackError",
    "running",
]
