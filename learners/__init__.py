"""Pure threshold policies: (state, outcome) to state and thresholds. No I/O and no clock."""
