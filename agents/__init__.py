"""The only place that knows Faust: apps, tables, one module per agent, explicit registration."""
