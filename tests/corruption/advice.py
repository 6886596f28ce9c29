"""Does what `rocketstore verify` advises, as an operator would, until nothing is advised."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from rocketstore.cli import exit_codes
from rocketstore.cli.app import cli

__all__ = ["STEPS_MAX", "Followed", "advised", "follow_the_advice", "run"]

#: Commands that mend, after which nothing may be advised any more; twice as many steps of any kind.
STEPS_MAX = 3
#: Commands that an advice may name.
COMMANDS = ("recover", "repair", "rebuild", "promote")
#: What `Followed` says of a circle.
CIRCLE = "the advice does not end"


def run(*words: object) -> Result:
    """The command line in this process."""
    return CliRunner().invoke(cli, [str(word) for word in words])


def advised(lines: Sequence[str], shape: Sequence[object] = ()) -> list[str]:
    """The command in an advice, without `rocketstore`; empty without one."""
    if not lines or "rocketstore " not in lines[-1]:
        return []
    words = shlex.split(lines[-1].partition("rocketstore ")[2])
    assert words[0] in COMMANDS, words
    options = [word for word in words[1:] if word.startswith("--")]
    end = words.index(str(shape[-1])) + 1 if shape else len(options) + 2
    return words[:end]


@dataclass
class Followed:
    """`verdicts`: what each `verify` said. `steps`: what was done after each, by hand and by command.
    `fault`: why following it went wrong, or ""."""

    verdicts: list[dict[str, Any]] = field(default_factory=list)
    steps: list[list[str]] = field(default_factory=list)
    fault: str = ""

    @property
    def commands(self) -> list[str]:
        """Names of the commands that were run."""
        return [step[-1].split()[0] for step in self.steps if step[-1].split()[0] in COMMANDS]

    def names(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Whether a verdict called this message lost, hidden, or without a place."""
        return any(
            (one["topic"], one["queue_id"]) == (topic, queue_id)
            and one["first"] <= queue_offset <= one["last"]
            for verdict in self.verdicts
            for kind in ("lost_messages", "hidden_messages")
            for one in verdict[kind]
        )

    def tells(self, place: tuple[str, int, int], physical_offset: int) -> bool:
        """Whether a verdict told of this message in any way."""
        return self.names(*place) or self.names_place(physical_offset)

    def names_place(self, physical_offset: int) -> bool:
        """Whether a verdict has a fault at the place of this record in the log, or has counted it among
        those that the next open cuts off, or that were trimmed."""
        said = {"cut": r"\[([0-9]+), ([0-9]+)\)", "trimmed": r"begins at ()([0-9]+)"}
        ranges = [
            (int(start or 0), int(end))
            for verdict in self.verdicts
            for one in verdict["notices"]
            if one["code"] in said
            for start, end in re.findall(said[one["code"]], one["reason"])
        ]
        return any(start <= physical_offset < end for start, end in ranges) or any(
            fault["position"] + int(Path(fault["file"]).name) == physical_offset
            for verdict in self.verdicts
            for fault in verdict["faults"]
            if Path(fault["file"]).parent.name == "commitlog" and Path(fault["file"]).name.isdigit()
        )


def follow_the_advice(root: Path, shape: Sequence[object] = ()) -> Followed:
    """Runs `verify`, does what it advises, exactly as printed, and again, until it advises nothing.

    `shape`: options that describe the store. A fault: an error of `verify`, an advised command that
    fails, or too many steps.
    """
    found = Followed()
    while True:
        result = run("verify", root, *shape, "--json")
        if result.exit_code not in (exit_codes.OK, exit_codes.DAMAGED):
            found.fault = (
                f"verify ends with {result.exit_code}: {result.output} {result.exception!r}"
            )
            return found
        verdict = json.loads(result.stdout)
        found.verdicts.append(verdict)
        if result.exit_code == exit_codes.OK:
            return found
        step = _by_hand(root, verdict["faults"])
        words = advised(verdict["advice"], shape)
        if words:
            done = run(*words)
            step.append(shlex.join(words))
            if done.exit_code not in (exit_codes.OK, exit_codes.DAMAGED):
                found.fault = f"{step[-1]} ends with {done.exit_code}: {done.output}"
        if not step:
            return found
        found.steps.append(step)
        # What is done by hand first, and who is the master, takes turns of its own.
        mends = [name for name in found.commands if name != "promote"]
        if len(mends) > STEPS_MAX or len(found.steps) > 2 * STEPS_MAX:
            found.fault = f"{CIRCLE}: {found.steps}, {verdict['faults'][:3]}"
        if found.fault:
            return found


def _by_hand(root: Path, faults: Sequence[dict[str, Any]]) -> list[str]:
    """What no command does: files are given their names, moved out of the store, or given up."""
    aside = root.parent / f"{root.name}-aside"
    aside.mkdir(exist_ok=True)
    named = {one["file"]: one["reason"] for one in faults if one["code"] == "name"}
    wanted = {}
    for file, reason in named.items():
        target = Path(file).with_name(reason.rpartition(" ")[2])
        free = not target.exists() or str(target) in named
        if reason.startswith("its records are those of") and free and target not in wanted.values():
            wanted[Path(file)] = target
    done = []
    for file in wanted:  # all at once: two may have each other's name
        file.rename(file.with_name(file.name + ".between"))
    for file, target in wanted.items():
        file.with_name(file.name + ".between").rename(target)
        done.append(f"by hand: {file.name} is named {target.name}")
    for one in faults:
        file = Path(one["file"])
        moved = one["code"] in ("stray", "in-the-way", "name") and file not in wanted
        given_up = one["code"] == "side-file" and (one["kind"] in ("config", "broker"))
        if (moved or given_up) and (file.is_symlink() or file.exists()):
            for each in (file, *([file.with_name(file.name + ".bak")] if given_up else [])):
                if each.is_symlink() or each.exists():
                    each.rename(aside / f"{len(list(aside.iterdir()))}")
            done.append(f"by hand: {file.name} is moved out of the store")
    return done
