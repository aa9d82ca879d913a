"""A private PostgreSQL server (`server`), and the shop that the demo and the tests run in it (`shop`)."""
