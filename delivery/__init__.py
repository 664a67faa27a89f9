"""How what the core decides takes effect: in which order, over ports; no Faust, no clients."""
