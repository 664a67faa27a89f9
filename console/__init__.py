"""What people see of a running system."""
