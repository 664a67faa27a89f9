"""What ails a system, and how to mend it: one finding per check."""
