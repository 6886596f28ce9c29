"""What goes wrong in a history: links, processes, clocks, peers, and the loss of the master.

After each of them an operator does what docs/replication.md says: where the master is lost, all copies
are stopped, the one with the largest rank is promoted above every term, and the others follow it.
"""

from __future__ import annotations

import contextlib
import random
import signal
import time
from collections.abc import Callable, Collection

from rocketstore.replication import promote
from tests.replication.histories.history import History
from tests.replication.histories.liars import BELIEVED_LIES, COPY_LIES, LyingMaster, lie_as_copy
from tests.replication.histories.machines import Machine, Node, NodeOverError
from tests.replication.histories.node import SHAPE
from tests.support.waiting import pause

__all__ = ["FAULTS", "striker"]

#: How often the next master is lost soon.
AGAIN = 0.4
#: Longest wait for a cut to be ordered, seconds.
CUT_S = 3.0


def striker(rng: random.Random, only: Collection[str] = ()) -> Callable[[History], None]:
    """What strikes one history: some kinds often, some never, in each a mixture of its own. `only`:
    nothing but these."""
    weights = {kind: weight * rng.choice((0, 1, 1, 4)) for kind, (weight, _) in FAULTS.items()}
    if only or not any(weights.values()):
        weights = dict.fromkeys(only or FAULTS, 1)

    def strike(history: History) -> None:
        [kind] = rng.choices([*weights], [*weights.values()])
        if FAULTS[kind][1](history):
            history.note(kind)

    return strike


def _a_copy(history: History) -> Machine | None:
    copies = history.copies()
    return history.rng.choice(copies) if copies else None


# ---- links ----


def _partition(history: History) -> bool:
    """Of one copy, or of the master from both."""
    parted = (
        history.others() if history.rng.random() < 0.3 else [history.rng.choice(history.others())]
    )
    seconds = history.rng.uniform(0.05, 1.5)
    for machine in parted:
        machine.link.up.hold()
        machine.link.down.hold()
        history.after(seconds, machine.link.heal)
    return True


def _one_way_loss(history: History) -> bool:
    link = history.rng.choice(history.others()).link
    history.rng.choice(link.ways).loses = True
    history.after(history.rng.uniform(0.05, 1.5), link.heal)
    return True


def _slow_link(history: History) -> bool:
    link = history.rng.choice(history.others()).link
    for way in link.ways:
        way.bytes_per_s = history.rng.choice((2_000, 20_000, 200_000))
        way.delay_s = history.rng.choice((0.0, 0.005, 0.05))
    history.after(history.rng.uniform(0.2, 2.0), link.heal)
    return True


def _flipped_bit(history: History) -> bool:
    history.rng.choice(history.rng.choice(history.others()).link.ways).flip()
    return True


def _cut_in_a_frame(history: History) -> bool:
    link = history.rng.choice(history.others()).link
    for _ in range(history.rng.randrange(1, 4)):
        history.rng.choice(link.ways).cut_after(history.rng.randrange(1, 3000))
    return True


# ---- processes and clocks ----


def _pause_a_copy(history: History) -> bool:
    return _pause(history, _a_copy(history))


def _pause_the_master(history: History) -> bool:
    return _pause(history, history.master)


def _pause(history: History, machine: Machine | None) -> bool:
    node = None if machine is None else machine.node
    if node is None:
        return False
    node.signal(signal.SIGSTOP)
    history.after(history.rng.uniform(0.05, 1.5), lambda: node.signal(signal.SIGCONT))
    return True


def _kill_a_copy(history: History) -> bool:
    machine = _a_copy(history)
    if machine is None:
        return False
    history.kill(machine)
    history.after(
        history.rng.choice((0.0, history.rng.random())), lambda: _follow(history, machine)
    )
    return True


def _kill_the_master(history: History) -> bool:
    """It comes back; sometimes all machines have lost their processes."""
    for machine in (history.master, *history.copies()):
        if machine is history.master or history.rng.random() < 0.2:
            history.kill(machine)
    history.reign(history.master)
    for machine in history.others():
        _follow(history, machine)
    return True


def _follow(history: History, machine: Machine) -> None:
    """Has it follow the master, if nothing has its store open."""
    if machine.node is None and machine is not history.master:
        machine.follow(history.address)


def _clock_jump(history: History) -> bool:
    machine = history.rng.choice([*history.machines.values()])
    if machine.node is None:
        return False
    seconds = history.rng.choice((0.5, 60, 86_400, 400 * 86_400)) * history.rng.choice((1, -1))
    machine.node.tell(f"clock {seconds}")
    return True


# ---- peers ----


def _lying_copy(history: History) -> bool:
    lies = COPY_LIES if history.settings.key is None else COPY_LIES | BELIEVED_LIES
    with contextlib.suppress(OSError):  # the master may be paused, or be lost meanwhile
        lie_as_copy(
            history.address,
            history.rng.choice([*lies]),
            history.rng,
            with_key=history.settings.key is not None,
            segment_bytes=SHAPE["commit_log_file_size_bytes"],
        )
    return True


def _lying_master(history: History) -> bool:
    """An unknown peer listens where a copy thinks that its master is."""
    machine = history.rng.choice(history.others())
    liar = LyingMaster(history.rng, with_key=history.settings.key is not None)
    history.closing.append(liar.close)
    machine.link.lead_to(liar.address)

    def end() -> None:
        if machine is not history.master and machine.link.target == liar.address:
            machine.link.lead_to(history.address)
        liar.close()
        history.note("lies of a master", liar.told.total())

    history.after(history.rng.uniform(0.2, 1.5), end)
    return True


# ---- the loss of the master ----


def _lose_the_master(history: History) -> bool:
    """Its process is dead, and so are those of all copies, before a rank is asked."""
    history.kill(history.master)
    old = history.master
    if not _promote_another(history):
        history.reign(old)
        for machine in history.others():
            _follow(history, machine)
        return False
    if history.rng.random() < 0.5:
        _follow_at_last(history, old)
    else:  # it is away for longer
        history.after(history.rng.uniform(1, 6), lambda: _follow_at_last(history, old))
    return True


def _split_brain(history: History) -> bool:
    """The master is paused, or nobody reaches it, and another is promoted. It goes on with its puts."""
    old = history.master
    node, paused = old.node, history.rng.random() < 0.6
    if node is None:
        return False
    if paused:
        node.signal(signal.SIGSTOP)
    label = history.label(old)
    if not _promote_another(history):
        node.signal(signal.SIGCONT)
        for machine in history.others():
            _follow(history, machine)
        return False
    history.deposed[old.name] = label

    def wake() -> None:
        node.signal(signal.SIGCONT)
        history.after(history.rng.uniform(0.3, 2.0), end)

    def end() -> None:
        if old.node is node:
            history.note("split brain: the old master heard of it", node.has_said("fenced"))
            _follow_at_last(history, old)

    history.after(history.rng.uniform(0.05, 1.5) if paused else 0.0, wake)
    if history.rng.random() < 0.6:
        history.after(history.rng.uniform(0.5, 2.5), lambda: _lead_back(history, old, node))
    return True


def _lead_back(history: History, old: Machine, node: Node) -> None:
    """A copy that knows the new master asks the old one: it has the old address."""
    if old.node is not node:
        return
    address = node.word("at ")
    for machine in history.copies():
        if machine.term == history.term:
            machine.link.lead_to(address)
            history.note("copy led to the old master")
            history.after(0.6, lambda: machine.link.lead_to(history.address))  # noqa: B023
            return


def _promote_another(history: History) -> bool:
    """False: no other has ever followed."""
    old = history.master
    for machine in history.others():
        history.kill(machine)
        history.after(0, machine.link.heal)
    rank, chosen = max(((one.rank, one) for one in history.others()), key=lambda pair: pair[0])
    if rank[0] <= 0:
        return False
    term = history.term + 1
    while history.rng.random() < 0.4:  # killed within its promotion
        node = Node(history.settings, "promote", chosen.root, term - 1)
        with contextlib.suppress(NodeOverError):
            node.word("ready")
            pause(history.rng.uniform(0, 0.03))
        history.note("promotion killed", not node.has_said("promoted"))
        node.kill()
        term = max(term, chosen.term + 1)
    history.term = promote(chosen.root, above=term - 1).term
    history.evidence.deposed[history.label(old)] = time.monotonic()
    history.note("promotions")
    history.reign(chosen)
    for machine in history.others():
        if machine is not old:
            _follow(history, machine)
    history.await_acknowledged(history.rng.uniform(0, 2))
    if history.rng.random() < AGAIN:
        history.after(history.rng.uniform(0, 2), lambda: _lose_again(history, chosen))
    return True


def _lose_again(history: History, master: Machine) -> None:
    """The next master is lost as well, perhaps while the one before is away with a longer log."""
    if history.master is master and _lose_the_master(history):
        history.note("loss of the next master")


def _follow_at_last(history: History, machine: Machine) -> None:
    """An old master becomes a copy. It is killed while its tail is cut, some times."""
    if machine is history.master:
        return
    history.kill(machine)
    for _ in range(history.rng.choice((0, 0, 1, 2, 3))):
        _follow(history, machine)
        until = time.monotonic() + CUT_S
        while time.monotonic() < until and not machine.cut_is_ordered:
            if machine.node is None or machine.node.has_said("open"):
                break
            pause(0.0005)
        pause(history.rng.choice((0, history.rng.uniform(0, 0.02))))
        in_cut = machine.cut_is_ordered
        history.kill(machine)
        history.note("killed in its cut", in_cut and machine.cut_is_ordered)
    _follow(history, machine)


FAULTS: dict[str, tuple[int, Callable[[History], bool]]] = {
    "partition": (3, _partition),
    "one-way loss": (3, _one_way_loss),
    "slow link": (2, _slow_link),
    "flipped bit": (3, _flipped_bit),
    "cut in a frame": (3, _cut_in_a_frame),
    "pause of a copy": (2, _pause_a_copy),
    "pause of the master": (2, _pause_the_master),
    "kill of a copy": (3, _kill_a_copy),
    "kill of the master": (2, _kill_the_master),
    "clock jump": (3, _clock_jump),
    "lying copy": (2, _lying_copy),
    "lying master": (2, _lying_master),
    "loss of the master": (3, _lose_the_master),
    "split brain": (4, _split_brain),
    "read": (3, lambda history: _read(history)),
}


def _read(history: History) -> bool:
    history.read(history.rng.choice([*history.machines.values()]))
    return True
