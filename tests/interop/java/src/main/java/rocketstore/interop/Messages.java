package rocketstore.interop;

import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.ByteBuffer;
import java.util.Base64;
import java.util.Map;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;

/** Messages from and to JSON. Bodies travel as Base64, hosts as "ip port". */
final class Messages {
    private Messages() {
    }

    static byte[] bytes(JsonObject fields, String name) {
        return Base64.getDecoder().decode(fields.get(name).getAsString());
    }

    static SocketAddress host(JsonObject fields, String name) throws Exception {
        String[] words = fields.get(name).getAsString().split(" ");
        return new InetSocketAddress(InetAddress.getByName(words[0]), Integer.parseInt(words[1]));
    }

    /** The text as it stands goes to the disk; the map is what the store itself asks for. */
    static void setProperties(Message message, String text) {
        Map<String, String> properties = MessageDecoder.string2messageProperties(text);
        MessageAccessor.setProperties(message, properties);
    }

    static void fill(MessageExt message, JsonObject fields) throws Exception {
        message.setTopic(fields.get("topic").getAsString());
        message.setQueueId(fields.get("queue_id").getAsInt());
        message.setFlag(fields.get("flag").getAsInt());
        message.setSysFlag(fields.get("sys_flag").getAsInt());
        message.setBornTimestamp(fields.get("born_timestamp_ms").getAsLong());
        message.setBornHost(host(fields, "born_host"));
        message.setStoreHost(host(fields, "store_host"));
        message.setReconsumeTimes(fields.get("reconsume_times").getAsInt());
        message.setPreparedTransactionOffset(fields.get("prepared_transaction_offset").getAsLong());
    }

    /** Null where RocketMQ cannot decode the record. */
    static JsonObject describe(ByteBuffer record) {
        MessageExt message = MessageDecoder.decode(record, true, false);
        return message == null ? null : describe(message);
    }

    /** What a client makes of one record of several messages. */
    static JsonArray parts(ByteBuffer record) throws Exception {
        JsonArray found = new JsonArray();
        for (MessageExt part : Generation.parts(MessageDecoder.decode(record, true, true))) {
            found.add(describe(part));
        }
        return found;
    }

    private static JsonObject describe(MessageExt message) {
        JsonObject found = new JsonObject();
        found.addProperty("topic", message.getTopic());
        found.addProperty("queue_id", message.getQueueId());
        found.addProperty("queue_offset", message.getQueueOffset());
        found.addProperty("physical_offset", message.getCommitLogOffset());
        found.addProperty("size", message.getStoreSize());
        found.addProperty("flag", message.getFlag());
        found.addProperty("sys_flag", message.getSysFlag());
        found.addProperty("born_timestamp_ms", message.getBornTimestamp());
        found.addProperty("born_host", name(message.getBornHost()));
        found.addProperty("store_timestamp_ms", message.getStoreTimestamp());
        found.addProperty("store_host", name(message.getStoreHost()));
        found.addProperty("reconsume_times", message.getReconsumeTimes());
        found.addProperty("prepared_transaction_offset", message.getPreparedTransactionOffset());
        found.addProperty("message_id", message.getMsgId());
        found.addProperty("body_crc", message.getBodyCRC());
        byte[] body = message.getBody();
        found.addProperty("body", body == null ? "" : Base64.getEncoder().encodeToString(body));
        JsonObject properties = new JsonObject();
        if (message.getProperties() != null) { // a record without any
            message.getProperties().forEach(properties::addProperty);
        }
        found.add("properties", properties);
        return found;
    }

    private static String name(SocketAddress address) {
        InetSocketAddress host = (InetSocketAddress) address;
        return host.getAddress().getHostAddress() + " " + host.getPort();
    }
}
