"""A private PostgreSQL server, and the shop that the demo and the tests run in it.

server    start it, stop it, find other servers of this machine; others import `embedded` and `Server`
shop      tables, and traffic that changes them; others import `open_shop` and `Traffic`
"""
