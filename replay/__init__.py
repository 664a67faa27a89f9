"""What happened, looked at again: backtests of policies on recorded outcomes."""
