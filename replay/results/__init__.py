"""What a backtest says: sums, sentences, tables, charts, the HTML page."""
