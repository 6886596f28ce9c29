package rocketstore.interop;

import com.google.gson.Gson;
import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.store.AppendMessageResult;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.SelectMappedBufferResult;
import org.apache.rocketmq.store.StoreCheckpoint;

/** The verbs. Every request names its store by path; several may be open at a time. */
final class Requests {
    private static final int MOST_MESSAGES_A_GET = 32;
    private static final int INNER_BATCH = 0xC0;

    private final Map<String, DefaultMessageStore> stores = new HashMap<>();

    JsonObject answer(JsonObject request) throws Exception {
        String verb = request.get("verb").getAsString();
        JsonObject answer = new JsonObject();
        if (verb.equals("version")) {
            answer.addProperty("generation", Generation.NAME);
            answer.addProperty("pid", ProcessHandle.current().pid());
            return answer;
        }
        if (verb.equals("halt")) {
            Runtime.getRuntime().halt(9);
        }
        if (verb.equals("warnings")) {
            answer.add("lines", new Gson().toJsonTree(Warnings.take()));
            return answer;
        }
        if (verb.equals("options")) {
            answer.add("options", new Gson().toJsonTree(Stores.options()));
            return answer;
        }
        String path = request.get("path").getAsString();
        if (verb.equals("open")) {
            return open(path, request.getAsJsonObject("config"));
        }
        DefaultMessageStore store = stores.get(path);
        if (store == null) {
            throw new IllegalStateException("not open: " + path);
        }
        switch (verb) {
            case "put":
                answer.add("results", put(store, request.getAsJsonArray("messages")));
                break;
            case "put_batch":
                answer.add("result", result(putBatch(store, request.getAsJsonObject("message"))));
                break;
            case "settle":
                settle(store);
                break;
            case "dump":
                return dump(store);
            case "get":
                return get(store, request);
            case "query":
                return query(store, request);
            case "offset_by_time":
                answer.addProperty("queue_offset", Generation.offsetByTime(store,
                    request.get("topic").getAsString(), request.get("queue_id").getAsInt(),
                    request.get("time_ms").getAsLong(), request.get("upper").getAsBoolean()));
                break;
            case "follow":
                store.updateHaMasterAddress(request.get("address").getAsString()); // as the broker of a slave does
                break;
            case "end":
                answer.addProperty("max_offset", store.getMaxPhyOffset());
                break;
            case "shutdown":
                store.shutdown();
                stores.remove(path);
                break;
            default:
                throw new IllegalArgumentException("verb " + verb);
        }
        return answer;
    }

    private JsonObject open(String path, JsonObject config) throws Exception {
        long began = System.nanoTime();
        DefaultMessageStore store = Stores.make(path, config);
        if (!store.load()) {
            throw new IllegalStateException("load() said no");
        }
        // A store that cannot be started has files and threads all the same: it stays until shutdown.
        stores.put(path, store);
        store.start();
        settle(store);
        JsonObject answer = new JsonObject();
        answer.addProperty("ms", (System.nanoTime() - began) / 1_000_000);
        answer.addProperty("min_offset", store.getMinPhyOffset());
        answer.addProperty("max_offset", store.getMaxPhyOffset());
        return answer;
    }

    /** Until everything in the log is in queues and index. */
    private static void settle(DefaultMessageStore store) throws Exception {
        long deadline = System.nanoTime() + 60_000_000_000L;
        while (store.dispatchBehindBytes() > 0) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("dispatch is " + store.dispatchBehindBytes() + " bytes behind");
            }
            Thread.sleep(1);
        }
    }

    private static JsonArray put(DefaultMessageStore store, JsonArray messages) throws Exception {
        JsonArray results = new JsonArray();
        for (JsonElement message : messages) {
            results.add(result(Generation.put(store, message.getAsJsonObject())));
        }
        return results;
    }

    private static PutMessageResult putBatch(DefaultMessageStore store, JsonObject given) throws Exception {
        List<Message> parts = new ArrayList<>();
        for (JsonElement part : given.getAsJsonArray("parts")) {
            JsonObject fields = part.getAsJsonObject();
            Message message = new Message();
            message.setTopic(given.get("topic").getAsString());
            message.setFlag(fields.get("flag").getAsInt());
            message.setBody(Messages.bytes(fields, "body"));
            Messages.setProperties(message, fields.get("properties").getAsString());
            parts.add(message);
        }
        MessageExtBatch batch = new MessageExtBatch();
        Messages.fill(batch, given);
        batch.setBody(MessageDecoder.encodeMessages(parts));
        if (given.has("common")) {
            Messages.setProperties(batch, given.get("common").getAsString());
        }
        return store.putMessages(batch);
    }

    private static JsonObject result(PutMessageResult put) {
        JsonObject found = new JsonObject();
        found.addProperty("status", put.getPutMessageStatus().name());
        AppendMessageResult append = put.getAppendMessageResult();
        if (append != null && append.isOk()) {
            found.addProperty("physical_offset", append.getWroteOffset());
            found.addProperty("size", append.getWroteBytes());
            found.addProperty("queue_offset", append.getLogicsOffset());
            found.addProperty("store_timestamp_ms", append.getStoreTimestamp());
            found.addProperty("message_id", append.getMsgId());
            found.addProperty("count", append.getMsgNum());
        }
        return found;
    }

    /** Everything the queues lead to, in the order of each queue. */
    private static JsonObject dump(DefaultMessageStore store) throws Exception {
        JsonArray queues = new JsonArray();
        for (Generation.Queue queue : Generation.queues(store)) {
            JsonObject found = new JsonObject();
            found.addProperty("topic", queue.topic);
            found.addProperty("queue_id", queue.queueId);
            found.addProperty("min", store.getMinOffsetInQueue(queue.topic, queue.queueId));
            found.addProperty("max", Generation.maxOffset(store, queue.topic, queue.queueId));
            JsonArray messages = new JsonArray();
            for (Unit unit : queue.units()) {
                messages.add(message(store, unit));
            }
            found.add("messages", messages);
            queues.add(found);
        }
        JsonObject answer = new JsonObject();
        answer.add("queues", queues);
        answer.addProperty("min_offset", store.getMinPhyOffset());
        answer.addProperty("max_offset", store.getMaxPhyOffset());
        StoreCheckpoint checkpoint = store.getStoreCheckpoint();
        answer.addProperty("log_timestamp_ms", checkpoint.getPhysicMsgTimestamp());
        answer.addProperty("queue_timestamp_ms", checkpoint.getLogicsMsgTimestamp());
        answer.addProperty("index_timestamp_ms", checkpoint.getIndexMsgTimestamp());
        return answer;
    }

    private static JsonObject message(DefaultMessageStore store, Unit unit) throws Exception {
        JsonObject found = null;
        SelectMappedBufferResult selected = store.selectOneMessageByOffset(unit.physicalOffset, unit.size);
        if (selected != null) {
            try {
                found = Messages.describe(selected.getByteBuffer());
                if (found != null && (found.get("sys_flag").getAsInt() & INNER_BATCH) == INNER_BATCH) {
                    selected.getByteBuffer().rewind();
                    found.add("parts", Messages.parts(selected.getByteBuffer()));
                }
            } finally {
                selected.release();
            }
        }
        if (found == null) {
            found = new JsonObject();
            found.addProperty("missing", true);
        }
        found.addProperty("unit_queue_offset", unit.queueOffset);
        found.addProperty("unit_physical_offset", unit.physicalOffset);
        found.addProperty("unit_size", unit.size);
        found.addProperty("tags_code", unit.tagsCode);
        found.addProperty("unit_messages", unit.messages);
        if (unit.extension != null) {
            JsonObject extension = new JsonObject();
            extension.addProperty("tags_code", unit.extension.getTagsCode());
            extension.addProperty("store_timestamp_ms", unit.extension.getMsgStoreTime());
            byte[] bitMap = unit.extension.getFilterBitMap();
            extension.addProperty("bit_map",
                Base64.getEncoder().encodeToString(bitMap == null ? new byte[0] : bitMap));
            found.add("extension", extension);
        }
        return found;
    }

    private static JsonObject get(DefaultMessageStore store, JsonObject request) {
        GetMessageResult got = store.getMessage("interop", request.get("topic").getAsString(),
            request.get("queue_id").getAsInt(), request.get("queue_offset").getAsLong(),
            MOST_MESSAGES_A_GET, null);
        JsonObject answer = new JsonObject();
        answer.addProperty("status", got.getStatus().name());
        answer.addProperty("next", got.getNextBeginOffset());
        answer.addProperty("min", got.getMinOffset());
        answer.addProperty("max", got.getMaxOffset());
        answer.add("messages", describeAll(got.getMessageBufferList()));
        got.release();
        return answer;
    }

    private static JsonObject query(DefaultMessageStore store, JsonObject request) {
        QueryMessageResult got = store.queryMessage(request.get("topic").getAsString(),
            request.get("key").getAsString(), request.get("most").getAsInt(),
            request.get("begin_ms").getAsLong(), request.get("end_ms").getAsLong());
        JsonObject answer = new JsonObject();
        answer.add("messages", describeAll(got.getMessageBufferList()));
        got.release();
        return answer;
    }

    private static JsonArray describeAll(List<ByteBuffer> buffers) {
        JsonArray messages = new JsonArray();
        for (ByteBuffer buffer : buffers) {
            messages.add(Messages.describe(buffer));
        }
        return messages;
    }
}
