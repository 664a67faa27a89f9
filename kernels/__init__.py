"""Compiled kernels: what the threshold worker does with many events at once, by Numba.

`loader` compiles and loads them; `api` is what it loads, and what `machine_code()` of processing
returns. Nothing else imports them, because importing Numba takes half a second.
"""
