"""Commands that move events: emit, events, export, import, ship, memory, dead-letters."""
