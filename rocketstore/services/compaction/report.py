"""What a compaction did, or would do."""

from __future__ import annotations

from dataclasses import dataclass

from rocketstore.log.damage import Damage
from rocketstore.values.plural import counted
from rocketstore.values.public import public

__all__ = ["CompactionReport"]


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionReport:
    """What `Store.compact` did of the log in [begin, end) of the source, physical offsets; what was
    stored later is not in it.

    With a `base`, its messages are among the `messages`, and [begin, end) is what it does not know.

    Each of the `messages` was `kept`, or was `superseded` by a later one of its key, or is one of
    `tombstones_dropped`, or one of `without_key` that were left out. `tombstones_kept` and
    `without_key_kept` are among the kept ones. `keys` is the number of different keys.
    """

    path: str
    into: str
    topics: tuple[str, ...]
    begin: int
    end: int
    messages: int
    keys: int
    kept: int
    superseded: int
    tombstones_kept: int
    tombstones_dropped: int
    without_key: int
    without_key_kept: int
    #: Records that no consumer is given: prepared and rolled back ones. They are left out.
    undelivered: int = 0
    #: Queue offsets between kept messages, which are pre-blanks in the new queues; 0 in a dry run.
    skipped_offsets: int = 0
    #: Of the log that was written, without the ends of segments; 0 in a dry run.
    bytes_written: int = 0
    seconds: float = 0.0
    dry_run: bool = False
    #: Path of the compacted store that this one goes on from; "": none.
    base: str = ""
    #: Ranges of the source without a record that can be believed, as in `ScanReport`.
    damage_count: int = 0
    damage: tuple[Damage, ...] = ()

    def __str__(self) -> str:
        would = "would be " if self.dry_run else ""
        kept = f"{self.kept} {would}kept"
        if self.tombstones_kept:
            kept += f" ({counted(self.tombstones_kept, 'tombstone')} among them)"
        parts = [
            f"{counted(self.messages, 'message')} with {counted(self.keys, 'key')}: {kept}",
            f"{self.superseded} superseded",
            f"{counted(self.tombstones_dropped, 'tombstone')} dropped",
        ]
        lines = [f"{self.into}: {', '.join(parts)}, in {self.seconds:.1f} s"]
        if self.without_key:
            what = "kept" if self.without_key_kept else "left out"
            lines.append(f"{counted(self.without_key, 'message')} without a key: {would}{what}")
        if self.undelivered:
            count = counted(self.undelivered, "record")
            lines.append(f"{count} that no consumer is given: {would}left out")
        lines += [f"damage in the source: {one}" for one in self.damage]
        if self.damage_count > len(self.damage):
            lines.append(f"and {self.damage_count - len(self.damage)} more damaged ranges")
        after = f", after the base {self.base}" if self.base else ""
        lines.append(f"read from {self.path}: physical offsets {self.begin} … {self.end}{after}")
        return "\n".join(lines)
