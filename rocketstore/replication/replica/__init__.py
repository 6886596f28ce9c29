"""The log of a master as it comes to a copy.

`ReplicaService` is the copy of one open store: it connects to the master, asks for what the copy
lacks, appends what comes, and reports how far the copy's disk is.

Read in this order:
    records: received bytes, as whole records.
    received_offsets: offsets of the master's groups, until the log has what they speak of.
    copied_log: the log of the copy, what its master learns of it, and how it grows and is cut.
    receiver: what one connection asks for, compares and appends.
    service: the thread that follows the master.

Of replication it imports the protocol, the transport, the settings and the role of the store.
"""
