"""The thread, the loop and the connections of replication; no protocol.

All network code of one store runs in one event loop in a thread of its own, so that neither a peer
nor a put waits for it.

Read in this order:
    loop: the thread with its event loop, and tasks in it.
    addresses: their text, and what the system finds for it.
    channels: connections, made and accepted, with TLS and without.
    limits: what peers may cost this process.

Of replication it imports the type of what a protocol sends (`protocol.link`).
"""
