package rocketstore.interop;

import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import java.util.function.Consumer;
import org.apache.rocketmq.common.BoundaryType;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.TopicAttributes;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.attribute.CQType;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.logging.ch.qos.logback.classic.Level;
import org.apache.rocketmq.logging.ch.qos.logback.classic.Logger;
import org.apache.rocketmq.logging.ch.qos.logback.classic.LoggerContext;
import org.apache.rocketmq.logging.ch.qos.logback.classic.spi.ILoggingEvent;
import org.apache.rocketmq.logging.ch.qos.logback.core.AppenderBase;
import org.apache.rocketmq.logging.org.slf4j.LoggerFactory;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.queue.ConsumeQueueInterface;
import org.apache.rocketmq.store.queue.CqUnit;
import org.apache.rocketmq.store.queue.ReferredIterator;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** What RocketMQ 5 names in its own way. */
final class Generation {
    static final String NAME = "v5";
    private static final String INNER_BATCHES = "InnerBatches";

    private Generation() {
    }

    static void prepare(MessageStoreConfig config) {
        config.setEnableCompaction(false); // directories and threads of a service that is not the store
        config.setTimerWheelEnable(false);
    }

    static DefaultMessageStore newStore(MessageStoreConfig config) throws Exception {
        return new DefaultMessageStore(config, new BrokerStatsManager("interop", false),
            (topic, queueId, logicOffset, tagsCode, storeTime, filter, properties) -> { },
            new BrokerConfig(), topics());
    }

    /** Which topics have batch queues stands in the broker's table, not in the store. */
    private static ConcurrentMap<String, TopicConfig> topics() {
        TopicConfig batches = new TopicConfig(INNER_BATCHES);
        batches.setAttributes(Map.of(TopicAttributes.QUEUE_TYPE_ATTRIBUTE.getName(), CQType.BatchCQ.toString()));
        ConcurrentMap<String, TopicConfig> topics = new ConcurrentHashMap<>();
        topics.put(INNER_BATCHES, batches);
        return topics;
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

    static long maxOffset(DefaultMessageStore store, String topic, int queueId) throws Exception {
        return store.getMaxOffsetInQueue(topic, queueId);
    }

    static long offsetByTime(DefaultMessageStore store, String topic, int queueId, long timeMs, boolean upper) {
        BoundaryType boundary = upper ? BoundaryType.UPPER : BoundaryType.LOWER;
        return store.getOffsetInQueueByTime(topic, queueId, timeMs, boundary);
    }

    static List<MessageExt> parts(MessageExt record) throws Exception {
        List<MessageExt> parts = new ArrayList<>();
        MessageDecoder.decodeMessage(record, parts);
        return parts;
    }

    static List<Queue> queues(DefaultMessageStore store) {
        List<Queue> found = new ArrayList<>();
        for (ConcurrentMap<Integer, ConsumeQueueInterface> ids : store.getConsumeQueueTable().values()) {
            ids.values().forEach(queue -> found.add(new Queue(queue)));
        }
        return found;
    }

    static void reportTo(Consumer<String> warnings) {
        LoggerContext context = (LoggerContext) LoggerFactory.getILoggerFactory();
        AppenderBase<ILoggingEvent> appender = new AppenderBase<>() {
            @Override
            protected void append(ILoggingEvent event) {
                if (event.getLevel().isGreaterOrEqual(Level.WARN)) {
                    warnings.accept(event.getLevel() + " " + event.getFormattedMessage());
                }
            }
        };
        appender.setContext(context);
        appender.start();
        for (Logger logger : context.getLoggerList()) {
            logger.detachAndStopAllAppenders();
        }
        Logger root = context.getLogger(Logger.ROOT_LOGGER_NAME);
        root.setLevel(Level.WARN);
        root.addAppender(appender);
    }

    static final class Queue {
        final String topic;
        final int queueId;
        private final ConsumeQueueInterface queue;

        Queue(ConsumeQueueInterface queue) {
            this.queue = queue;
            this.topic = queue.getTopic();
            this.queueId = queue.getQueueId();
        }

        List<Unit> units() {
            List<Unit> found = new ArrayList<>();
            long next = queue.getMinOffsetInQueue();
            while (next < queue.getMaxOffsetInQueue()) {
                ReferredIterator<CqUnit> units = queue.iterateFrom(next);
                if (units == null) {
                    break;
                }
                long before = next;
                try {
                    while (units.hasNext()) {
                        CqUnit unit = units.next();
                        Unit told = new Unit(unit.getQueueOffset(), unit.getPos(), unit.getSize(),
                            unit.getTagsCode());
                        told.messages = unit.getBatchNum();
                        told.extension = unit.getCqExtUnit();
                        found.add(told);
                        next = unit.getQueueOffset() + unit.getBatchNum();
                    }
                } finally {
                    units.release();
                }
                if (next == before) {
                    break;
                }
            }
            return found;
        }
    }
}
