"""Kernels that Numba compiles: they scan events, read record batches and teach contexts.

`loader` compiles `api` and installs it in `processing.kernel_handle`, from where it is used.
Nothing else imports the kernels, because importing Numba takes half a second.
"""
