package rocketstore.interop;

import org.apache.rocketmq.store.ConsumeQueueExt.CqExtUnit;

/** A consume queue's entry: where a message lies, or several that are one record. */
final class Unit {
    final long queueOffset;
    final long physicalOffset;
    final int size;
    final long tagsCode;
    int messages = 1;
    CqExtUnit extension; // null without one

    Unit(long queueOffset, long physicalOffset, int size, long tagsCode) {
        this.queueOffset = queueOffset;
        this.physicalOffset = physicalOffset;
        this.size = size;
        this.tagsCode = tagsCode;
    }
}
