"""Delayed messages: RocketMQ's delay levels and times of their own, on disk as RocketMQ has them.

A put with a delay goes to a system topic (`log.queues.delayed_puts`, `puts`). One thread puts
what is due into its own topic, once, also after a stop at any point.

Read in this order:
    waiting: the queues of the schedule topic; their units say when each message is due. What is
    known
        of one: pauses after errors, messages that are left over, when its next one is due.
    copies: what is put when a message is due, and how such copies are found in the log again: what
        was delivered before this start.
    progress: `config/delayOffset.json`, how far delivery has come; `offsets` says when it is
        stored.
    delivery: one round: what is due is put, then the offsets are stored.
    timer_topic: the topic of times of their own: what each of its records means.
    timer_table: which of its messages wait, in order, on disk but for a window of each run.
    timer_file: how that is stored, and when it is not believed.
    timers: these as a whole, under one lock; it takes one out or gives it another time.
    rolling: puts again those that hold a part of the log which retention wants to remove.
    timer_delivery: one round of them.
    service: the thread, which sleeps until the next message is due.
    recurring: messages that come again, and when.
    pending: `store.delayed`: what waits; `delayed_message`: one of it.
    changing: what a transaction does to what waits.

Imports: the engine, `puts` and readers of the log. `rocketstore.open` starts the service, and
`rocketstore.store` leads to `pending`.
"""

from __future__ import annotations

from rocketstore.services.delay.changing import Changing
from rocketstore.services.delay.delayed_message import CancelResult, DelayedMessage
from rocketstore.services.delay.pending import Delayed
from rocketstore.services.delay.service import deliver_in, note_put, waits_from
from rocketstore.services.delay.timers import is_waiting

__all__ = [
    "CancelResult",
    "Changing",
    "Delayed",
    "DelayedMessage",
    "deliver_in",
    "is_waiting",
    "note_put",
    "waits_from",
]
