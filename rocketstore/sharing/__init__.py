"""One store of several processes: one holds it, the others are its guests (docs/several_processes.md).

The process that has the lock of the store serves the others, as a service of its engine. A guest reads the
files as any reader does, and sends what changes them to the host. Where the host ends, a guest's process
takes the lock, opens the store as a hidden host, and stays a guest of itself.

Read in this order:
    messages: hellos, calls, values and errors, as both sides say them.
    meeting: the socket in the store's directory, its users, and what a fork does to connections.
    host: the service that listens, and what it knows of each guest; `host_calls`: what guests ask by name,
        with the values of `messages`; `host_commits`: of groups and transactions, with those of `call_values`.
    link: the connections of a guest, and the thread that looks for the next host; `hidden`: the stores that
        this process holds for its guests.
    guest: the engine of a guest; `guest_log`: its log, which is elsewhere. `guest_offsets`: groups,
        `guest_puts`: unique ids and delays, `guest_services`: transactions and the other services.
    opening: which of both an open becomes, and `serve_guests`, by which an open store becomes a host.
    asking: `ask_host`, one call of a process that is no guest; `guests_of`, for which `tools` has a place.

Imports: the store and what is below it, and services; of `spark` what a sink asks, late. `rocketstore.open` imports
`opening` where it is asked for a shared store. Faces import the names below only.
"""

from rocketstore.sharing.asking import ask_host
from rocketstore.sharing.meeting import adopt
from rocketstore.sharing.opening import serve_guests

__all__ = ["adopt", "ask_host", "serve_guests"]
