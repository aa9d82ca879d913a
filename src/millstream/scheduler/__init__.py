"""When to refresh what: how often each stream table is due, and in which order, since some read others."""
