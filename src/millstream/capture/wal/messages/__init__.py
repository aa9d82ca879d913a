"""Messages of the replication protocol, decoded.

protocol                     frames and pgoutput messages
transactions, spill          messages put together to committed transactions; large ones go to disk
rows, decode, copy_text      the values of many rows at once, as text that COPY reads
"""
