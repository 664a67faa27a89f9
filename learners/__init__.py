"""Pure threshold policies: (state, outcome) -> state, state -> thresholds. No I/O, no clock."""
