"""Reports put together: several into one, and one beside an earlier one."""
