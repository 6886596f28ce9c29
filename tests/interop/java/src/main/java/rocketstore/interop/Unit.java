package rocketstore.interop;

/** A consume queue's entry: where a message lies. */
final class Unit {
    final long queueOffset;
    final long physicalOffset;
    final int size;
    final long tagsCode;

    Unit(long queueOffset, long physicalOffset, int size, long tagsCode) {
        this.queueOffset = queueOffset;
        this.physicalOffset = physicalOffset;
        this.size = size;
        this.tagsCode = tagsCode;
    }
}
