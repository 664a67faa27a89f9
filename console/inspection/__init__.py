"""The running system seen from outside: what it does now, whether it is well, and what ails it."""
