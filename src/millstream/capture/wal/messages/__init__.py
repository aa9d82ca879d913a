"""Decode the messages of the replication protocol.

protocol                     frames and pgoutput messages
transactions, spill          assemble messages into committed transactions; large ones go to disk
rows, decode, copy_text      the values of many rows at once, as text for COPY
"""
