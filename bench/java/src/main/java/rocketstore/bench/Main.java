package rocketstore.bench;

import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Random;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.config.FlushDiskType;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** Does to RocketMQ's store what a line of words says, and answers with nanoseconds. One topic, one queue. */
public final class Main {
    private static final String TOPIC = "bench";
    private static final String GROUP = "bench";
    private static final int MESSAGES_A_GET = 32;
    private static final SocketAddress HOST = new InetSocketAddress("127.0.0.1", 10911);

    private static DefaultMessageStore store;
    /** When message n of a latency run could be pulled. */
    private static volatile AtomicLong[] arrived;

    private Main() {
    }

    public static void main(String[] none) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            try {
                System.out.println(answer(line.split(" ")));
            } catch (Throwable thrown) {
                thrown.printStackTrace();
                System.exit(1); // the threads of the store would keep the process
            }
            System.out.flush();
        }
        System.exit(0);
    }

    private static String answer(String[] words) throws Exception {
        switch (words[0]) {
            case "open":
                return String.valueOf(open(words[1], words[2].equals("disk")));
            case "put":
                return String.valueOf(put(number(words[1]), number(words[2]), false));
            case "keyed":
                return String.valueOf(put(number(words[1]), number(words[2]), true));
            case "batch":
                return String.valueOf(putBatches(number(words[1]), number(words[2]), number(words[3])));
            case "flight":
                return String.valueOf(putInFlight(number(words[1]), number(words[2]), number(words[3])));
            case "read":
                return String.valueOf(read(number(words[1])));
            case "latency":
                return latency(number(words[1]), number(words[2]), number(words[3]));
            case "settle":
                settle();
                return "0";
            case "close":
                store.shutdown();
                store = null;
                return "0";
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private static int number(String word) {
        return Integer.parseInt(word);
    }

    /** Until every message can be pulled. */
    private static long open(String path, boolean synchronous) throws Exception {
        long began = System.nanoTime();
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(path);
        config.setStorePathCommitLog(path + File.separator + "commitlog");
        config.setHaListenPort(0);
        config.setDiskMaxUsedSpaceRatio(95);
        config.setEnableCompaction(false);
        config.setTimerWheelEnable(false);
        if (synchronous) {
            config.setFlushDiskType(FlushDiskType.SYNC_FLUSH);
        }
        store = new DefaultMessageStore(config, new BrokerStatsManager("bench", false),
            (topic, queueId, logicOffset, tagsCode, storeTime, filter, properties) -> {
                AtomicLong[] waiting = arrived;
                // logicOffset is the offset behind the message that came.
                if (waiting != null && logicOffset <= waiting.length) {
                    waiting[(int) logicOffset - 1].set(System.nanoTime());
                }
            },
            new BrokerConfig(), new ConcurrentHashMap<>());
        if (!store.load()) {
            throw new IllegalStateException("load() said no");
        }
        store.start();
        settle();
        return System.nanoTime() - began;
    }

    private static void settle() throws Exception {
        while (store.dispatchBehindBytes() > 0) {
            Thread.sleep(1);
        }
    }

    private static byte[][] bodies(int size) {
        byte[][] bodies = new byte[256][size];
        Random random = new Random(1);
        for (byte[] body : bodies) {
            random.nextBytes(body);
        }
        return bodies;
    }

    private static MessageExtBrokerInner message(byte[] body) {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        message.setTopic(TOPIC);
        message.setQueueId(0);
        message.setBody(body);
        message.setBornHost(HOST);
        message.setStoreHost(HOST);
        message.setBornTimestamp(System.currentTimeMillis());
        MessageAccessor.setProperties(message, new HashMap<>());
        message.setPropertiesString("");
        return message;
    }

    private static MessageExtBrokerInner keyed(byte[] body, int n) {
        MessageExtBrokerInner message = message(body);
        message.setTags("tag");
        message.setKeys("key-" + n);
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
        return message;
    }

    private static void check(PutMessageResult result) {
        if (!result.isOk()) {
            throw new IllegalStateException(String.valueOf(result.getPutMessageStatus()));
        }
    }

    private static long put(int count, int size, boolean keyed) {
        byte[][] bodies = bodies(size);
        long began = System.nanoTime();
        for (int n = 0; n < count; n++) {
            byte[] body = bodies[n & 255];
            check(store.putMessage(keyed ? keyed(body, n) : message(body)));
        }
        return System.nanoTime() - began;
    }

    private static long putBatches(int count, int size, int each) {
        byte[][] bodies = bodies(size);
        List<Message> messages = new ArrayList<>();
        for (int n = 0; n < each; n++) {
            messages.add(new Message(TOPIC, bodies[n & 255]));
        }
        long began = System.nanoTime();
        for (int n = 0; n < count; n += each) {
            MessageExtBatch batch = new MessageExtBatch();
            batch.setTopic(TOPIC);
            batch.setQueueId(0);
            batch.setBornHost(HOST);
            batch.setStoreHost(HOST);
            batch.setBornTimestamp(System.currentTimeMillis());
            MessageAccessor.setProperties(batch, new HashMap<>());
            batch.setBody(MessageDecoder.encodeMessages(messages));
            check(store.putMessages(batch));
        }
        return System.nanoTime() - began;
    }

    private static long putInFlight(int count, int size, int most) throws Exception {
        byte[][] bodies = bodies(size);
        Semaphore free = new Semaphore(most);
        AtomicLong refused = new AtomicLong();
        long began = System.nanoTime();
        for (int n = 0; n < count; n++) {
            free.acquire();
            store.asyncPutMessage(message(bodies[n & 255])).thenAccept(result -> {
                if (!result.isOk()) {
                    refused.incrementAndGet();
                }
                free.release();
            });
        }
        free.acquire(most);
        long took = System.nanoTime() - began;
        if (refused.get() > 0) {
            throw new IllegalStateException(refused + " puts were refused");
        }
        return took;
    }

    /** All messages of the queue, decoded; fails unless there are `count`. */
    private static long read(int count) throws Exception {
        long began = System.nanoTime();
        long next = store.getMinOffsetInQueue(TOPIC, 0);
        int found = 0;
        long bytes = 0;
        while (found < count) {
            GetMessageResult got = store.getMessage(GROUP, TOPIC, 0, next, MESSAGES_A_GET, null);
            if (got.getMessageCount() == 0) {
                throw new IllegalStateException(got.getStatus() + " at " + next);
            }
            try {
                for (ByteBuffer buffer : got.getMessageBufferList()) {
                    MessageExt message = MessageDecoder.decode(buffer, true, false);
                    bytes += message.getBody().length;
                    found++;
                }
            } finally {
                got.release();
            }
            next = got.getNextBeginOffset();
        }
        long took = System.nanoTime() - began;
        if (bytes == 0) {
            throw new IllegalStateException("no bodies");
        }
        return took;
    }

    /** Before a put until its message can be pulled, at a steady rate: p50 and p99. */
    private static String latency(int count, int size, int perSecond) throws Exception {
        byte[][] bodies = bodies(size);
        long from = Math.max(0, store.getMaxOffsetInQueue(TOPIC, 0));
        if (from != 0) {
            throw new IllegalStateException("a new store is needed");
        }
        AtomicLong[] came = new AtomicLong[count];
        Arrays.setAll(came, n -> new AtomicLong());
        long[] sent = new long[count];
        arrived = came;
        long period = 1_000_000_000L / perSecond;
        long due = System.nanoTime();
        for (int n = 0; n < count; n++) {
            while (System.nanoTime() < due) {
                Thread.onSpinWait();
            }
            due += period;
            sent[n] = System.nanoTime();
            check(store.putMessage(message(bodies[n & 255])));
        }
        settle();
        Thread.sleep(100);
        arrived = null;
        long[] took = new long[count];
        for (int n = 0; n < count; n++) {
            if (came[n].get() == 0) {
                throw new IllegalStateException("no word of message " + n);
            }
            took[n] = came[n].get() - sent[n];
        }
        Arrays.sort(took);
        return took[count / 2] + " " + took[(int) (count * 0.99)];
    }
}
