package rocketstore.interop;

import com.google.gson.JsonObject;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.ConcurrentMap;
import java.util.function.Consumer;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.logging.InternalLogger;
import org.apache.rocketmq.logging.InternalLoggerFactory;
import org.apache.rocketmq.store.ConsumeQueue;
import org.apache.rocketmq.store.ConsumeQueueExt.CqExtUnit;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageExtBrokerInner;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.SelectMappedBufferResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** What RocketMQ 4 names in its own way. */
final class Generation {
    static final String NAME = "v4";

    private Generation() {
    }

    static void prepare(MessageStoreConfig config) {
        // Nothing that is not the store starts by itself.
    }

    static DefaultMessageStore newStore(MessageStoreConfig config) throws Exception {
        return new DefaultMessageStore(config, new BrokerStatsManager("interop", false),
            (topic, queueId, logicOffset, tagsCode, storeTime, filter, properties) -> { },
            new BrokerConfig());
    }

    static PutMessageResult put(DefaultMessageStore store, JsonObject fields) throws Exception {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        Messages.fill(message, fields);
        message.setBody(Messages.bytes(fields, "body"));
        String text = fields.get("properties").getAsString();
        Messages.setProperties(message, text);
        message.setPropertiesString(text);
        return store.putMessage(message);
    }

    static long maxOffset(DefaultMessageStore store, String topic, int queueId) {
        return store.getMaxOffsetInQueue(topic, queueId);
    }

    /** There is one boundary only. */
    static long offsetByTime(DefaultMessageStore store, String topic, int queueId, long timeMs, boolean upper) {
        return store.getOffsetInQueueByTime(topic, queueId, timeMs);
    }

    /** No record holds several messages. */
    static List<MessageExt> parts(MessageExt record) {
        return List.of(record);
    }

    static List<Queue> queues(DefaultMessageStore store) {
        List<Queue> found = new ArrayList<>();
        for (ConcurrentMap<Integer, ConsumeQueue> ids : store.getConsumeQueueTable().values()) {
            ids.values().forEach(queue -> found.add(new Queue(queue)));
        }
        return found;
    }

    static void reportTo(Consumer<String> warnings) {
        new InternalLoggerFactory() {
            {
                doRegister();
            }

            @Override
            protected String getLoggerType() {
                return "interop";
            }

            @Override
            protected InternalLogger getLoggerInstance(String name) {
                return logger(name, warnings);
            }

            @Override
            protected void shutdown() {
                // Nothing is kept.
            }
        };
        InternalLoggerFactory.setCurrentLoggerType("interop");
    }

    private static InternalLogger logger(String name, Consumer<String> warnings) {
        Class<?>[] types = {InternalLogger.class};
        return (InternalLogger) Proxy.newProxyInstance(types[0].getClassLoader(), types, (self, method, words) -> {
            switch (method.getName()) {
                case "getName":
                    return name;
                case "warn":
                case "error":
                    warnings.accept(method.getName().toUpperCase() + " " + Arrays.deepToString(words));
                    return null;
                case "hashCode":
                    return System.identityHashCode(self);
                case "equals":
                    return self == words[0];
                case "toString":
                    return name;
                default:
                    return null;
            }
        });
    }

    static final class Queue {
        final String topic;
        final int queueId;
        private final ConsumeQueue queue;

        Queue(ConsumeQueue queue) {
            this.queue = queue;
            this.topic = queue.getTopic();
            this.queueId = queue.getQueueId();
        }

        List<Unit> units() {
            List<Unit> found = new ArrayList<>();
            long next = queue.getMinOffsetInQueue();
            while (next < queue.getMaxOffsetInQueue()) {
                SelectMappedBufferResult selected = queue.getIndexBuffer(next);
                if (selected == null) {
                    break;
                }
                long before = next;
                try {
                    ByteBuffer units = selected.getByteBuffer();
                    while (units.remaining() >= ConsumeQueue.CQ_STORE_UNIT_SIZE) {
                        Unit told = new Unit(next, units.getLong(), units.getInt(), units.getLong());
                        CqExtUnit extension = new CqExtUnit();
                        if (queue.isExtAddr(told.tagsCode) && queue.getExt(told.tagsCode, extension)) {
                            told.extension = extension;
                        }
                        found.add(told);
                        next++;
                    }
                } finally {
                    selected.release();
                }
                if (next == before) {
                    break;
                }
            }
            return found;
        }
    }
}
