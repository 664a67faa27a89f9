"""Shifts the clock of a Python process by TEST_CLOCK_S seconds, if this folder is on its path."""

import os
import time

SHIFT_S = int(os.environ.get("TEST_CLOCK_S", "0"))
real_time, real_time_ns = time.time, time.time_ns
time.time = lambda: real_time() + SHIFT_S
time.time_ns = lambda: real_time_ns() + SHIFT_S * 1_000_000_000
