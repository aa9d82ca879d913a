"""Capture from the WAL by logical decoding, with one replication slot per database.

slot, publication, connection     what exists on the server, and the connection to it
messages/                         pgoutput messages, decoded into committed transactions
pipeline                          from the slot to the buffers
    inbox, buffer_writer              what was received; what is stored
    acknowledge, feedback, heartbeat  how far the server may discard WAL
follower                          what a process that refreshes needs: has the WAL been read far enough?
"""
