"""`Emitter`: takes events, puts them into the spool or into memory, and returns."""
