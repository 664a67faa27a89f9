"""What can go wrong with the local stack. Messages are for the user: what, where, what to do."""


class StackError(RuntimeError):
    """The stack cannot do what was asked; the first line of the message says why and the remedy."""


class AlreadyRunning(StackError):
    """Another process holds the data directory; the message says which."""
