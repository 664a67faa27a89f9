"""What arguments a tool is called with: where values come from, and which is likeliest."""
