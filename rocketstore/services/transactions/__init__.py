"""Transactions in RocketMQ's form: a message is prepared, then committed or rolled back.

half_messages: the form on disk (format.md 11.1 to 11.3): half messages, op messages, committed
    copies.
open_table: which transactions are open, out of the half and op topics, and the progress of
    RocketMQ's group CID_RMQ_SYS_TRANS.
reading: reads a queue past messages that cannot be read, and finds the copy that a commit has put
    already.
settling: puts the copy and the op message, each once, also after a crash between the two.
checks: asks the program about transactions that nobody has settled.
transactions: `Store.transactions`, which prepares, commits, rolls back and lists.

A transaction of several messages and offsets, `Store.transaction`, has a form of its own (format.md
11.5, decision 0038):

commit_records: the record that holds all of it, and what a copy of the store does about it at its
    promotion.
commits: appends it with its copies, stores the offsets, and finishes what a crash cut.
new_copies: what a transaction may put, and the room that it takes.
store_transaction: what a program collects, and its end.
"""
