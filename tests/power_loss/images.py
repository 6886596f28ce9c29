"""One image: what a disk held when the power went, chosen at random from what it may hold."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.power_loss.disk import PAGE, ZEROS, Disk

__all__ = ["Image", "take_image"]

SECTOR = 512


@dataclass(slots=True)
class Image:
    """A directory tree. `killed`: the process died, the machine did not: nothing is missing."""

    how: str
    killed: bool
    directories: list[str] = field(default_factory=list)
    #: Path → number of the file; two names may have one.
    names: dict[str, int] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)
    pages: dict[int, dict[int, bytes]] = field(default_factory=dict)

    def write(self, root: str) -> None:
        """Makes the tree in an empty directory."""
        for path in self.directories:
            os.mkdir(f"{root}/{path}", 0o700)
        first: dict[int, str] = {}
        for path, number in self.names.items():
            if number in first:
                os.link(f"{root}/{first[number]}", f"{root}/{path}")
                continue
            first[number] = path
            fd = os.open(f"{root}/{path}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            size = self.sizes[number]
            os.ftruncate(fd, size)
            for page, data in self.pages[number].items():
                position = page * PAGE
                if position < size:
                    os.pwrite(fd, data[: size - position], position)
            os.close(fd)


#: Index of the version that is on disk, out of so many.
Pick = Callable[[int], int]


def _policy(rng: random.Random, disk: Disk) -> tuple[str, Pick, Pick, float]:
    """How an image is chosen: its name, how versions of data and of names are, how often a page is torn."""
    kind = rng.randrange(8)
    if kind == 0:
        return "killed", _newest, _newest, 0.0
    if kind == 1:
        return "synced only", _oldest, _oldest, 0.0
    if kind == 2:
        pick = _one_of(rng, _open_items(disk), odd=_older(rng), others=_newest)
        return "one thing is old", pick, pick, 0.0
    if kind == 3:
        pick = _one_of(rng, _open_items(disk), odd=_newest, others=_oldest)
        return "one thing is new", pick, pick, 0.0
    share = rng.choice((0.1, 0.5, 0.9))
    mixed = _mixed(rng, share)
    if kind == 4:
        return f"names {share} new", _newest, mixed, 0.0
    if kind == 5:
        return f"bytes {share} new", mixed, _newest, rng.choice((0.0, 0.3, 1.0))
    return f"all {share} new", mixed, mixed, rng.choice((0.0, 0.2, 1.0))


def _newest(count: int) -> int:
    return count - 1


def _oldest(count: int) -> int:
    return 0


def _older(rng: random.Random) -> Pick:
    return lambda count: rng.randrange(count - 1)


def _mixed(rng: random.Random, share: float) -> Pick:
    """The newest version so often, else any."""
    return lambda count: count - 1 if rng.random() < share else rng.randrange(count)


def _open_items(disk: Disk) -> int:
    return sum(len(f.dirty) + (len(f.sizes) > 1) for f in disk.files.values()) + sum(
        len(versions) > 1 for versions in disk.names.values()
    )


def _one_of(rng: random.Random, count: int, *, odd: Pick, others: Pick) -> Pick:
    """One thing of `count` differs from the others."""
    left = rng.randrange(count) if count else 0

    def pick(versions: int) -> int:
        nonlocal left
        left -= 1
        return odd(versions) if left == -1 else others(versions)

    return pick


def take_image(disk: Disk, rng: random.Random) -> Image:
    """One of the states that `disk` may be in after a loss of power now, or the death of the process."""
    how, pick, pick_name, torn = _policy(rng, disk)
    image = Image(how, how == "killed")
    _take_names(disk, image, pick_name)
    # In an order of its own, so that "one thing" may be any.
    for number in sorted(set(image.names.values())):
        file = disk.files[number]
        sizes = file.sizes
        image.sizes[number] = sizes[pick(len(sizes)) if len(sizes) > 1 else 0]
        pages = image.pages[number] = {}
        for page in sorted(file.pages):
            versions = file.pages[page]
            data = versions[0]
            if len(versions) > 1:
                data = versions[pick(len(versions))]
                if torn and rng.random() < torn:
                    data = _torn(rng, data, versions[pick(len(versions))])
            if data != ZEROS:
                pages[page] = data
    return image


def _take_names(disk: Disk, image: Image, pick: Pick) -> None:
    chosen = {}
    for path in sorted(disk.names):
        versions = disk.names[path]
        chosen[path] = pick(len(versions)) if len(versions) > 1 else 0
    found = {path: disk.names[path][index] for path, index in chosen.items()}
    for old, new, number in disk.moves:
        # A rename is one step: the new name may come before the old one goes, never after.
        versions = disk.names[new]
        if number in versions and chosen[new] < versions.index(number):
            found[old] = number
    there = {""}
    for path, number in found.items():
        if not number or path.rpartition("/")[0] not in there:
            continue
        if number in disk.directories:
            there.add(path)
            image.directories.append(path)
        else:
            image.names[path] = number


def _torn(rng: random.Random, one: bytes, other: bytes) -> bytes:
    """Some sectors of one version, some of another."""
    if one == other:
        return one
    return b"".join(
        (one if rng.random() < 0.5 else other)[at : at + SECTOR] for at in range(0, PAGE, SECTOR)
    )
