"""The results of a backtest: sums, sentences, tables, charts, the HTML page."""
