"""TPC-H: tables, queries and changes."""
