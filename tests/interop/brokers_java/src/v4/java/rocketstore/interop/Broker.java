package rocketstore.interop;

import io.netty.channel.ChannelHandlerContext;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.protocol.RequestCode;
import org.apache.rocketmq.common.protocol.body.ConsumerOffsetSerializeWrapper;
import org.apache.rocketmq.common.protocol.body.KVTable;
import org.apache.rocketmq.common.protocol.body.SubscriptionGroupWrapper;
import org.apache.rocketmq.common.protocol.body.TopicConfigSerializeWrapper;
import org.apache.rocketmq.common.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.remoting.netty.NettyRemotingServer;
import org.apache.rocketmq.remoting.netty.NettyRequestProcessor;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageExtBrokerInner;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * What of a broker of RocketMQ 4 answers a slave: its store, its remoting server, and the documents that it
 * makes. The broker itself is in no repository that tests reach.
 */
final class Broker implements NettyRequestProcessor {
    private final DefaultMessageStore store;
    private final NettyRemotingServer server;
    private final ExecutorService threads = Executors.newSingleThreadExecutor();
    private final TopicConfigSerializeWrapper topics = new TopicConfigSerializeWrapper();
    private final SubscriptionGroupWrapper groups = new SubscriptionGroupWrapper();
    private final ConsumerOffsetSerializeWrapper offsets = new ConsumerOffsetSerializeWrapper();

    Broker(MessageStoreConfig config, int port) throws Exception {
        store = new DefaultMessageStore(config, new BrokerStatsManager("interop", false),
            (topic, queueId, logicOffset, tagsCode, storeTime, filter, properties) -> { }, new BrokerConfig());
        if (!store.load()) {
            throw new IllegalStateException("load() said no");
        }
        store.start();
        NettyServerConfig listens = new NettyServerConfig();
        listens.setListenPort(port);
        server = new NettyRemotingServer(listens);
        for (int code : new int[] {RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
            RequestCode.GET_ALL_CONSUMER_OFFSET, RequestCode.GET_ALL_DELAY_OFFSET,
            RequestCode.GET_BROKER_RUNTIME_INFO}) {
            server.registerProcessor(code, this, threads);
        }
        server.start();
    }

    @Override
    public RemotingCommand processRequest(ChannelHandlerContext context, RemotingCommand request) {
        RemotingCommand response = RemotingCommand.createResponseCommand(0, null);
        response.setBody(body(request.getCode()));
        return response;
    }

    @Override
    public boolean rejectRequest() {
        return false;
    }

    private byte[] body(int code) {
        switch (code) {
            case RequestCode.GET_ALL_TOPIC_CONFIG:
                return topics.encode();
            case RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG:
                return groups.encode();
            case RequestCode.GET_ALL_CONSUMER_OFFSET:
                return offsets.encode();
            case RequestCode.GET_ALL_DELAY_OFFSET:
                return store.getScheduleMessageService().encode().getBytes(StandardCharsets.UTF_8);
            default:
                KVTable table = new KVTable();
                table.setTable(new HashMap<>(store.getRuntimeInfo()));
                return table.encode();
        }
    }

    void topic(String name) {
        topics.getTopicConfigTable().put(name, new TopicConfig(name, 4, 4, 6));
        topics.getDataVersion().nextVersion();
    }

    void group(String name) {
        SubscriptionGroupConfig group = new SubscriptionGroupConfig();
        group.setGroupName(name);
        groups.getSubscriptionGroupTable().put(name, group);
        groups.getDataVersion().nextVersion();
    }

    void commit(String group, String topic, int queueId, long offset) {
        ConcurrentMap<Integer, Long> row =
            offsets.getOffsetTable().computeIfAbsent(topic + "@" + group, key -> new ConcurrentHashMap<>());
        row.put(queueId, offset);
    }

    String put(String topic, String body, int level) {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        message.setTopic(topic);
        message.setBody(body.getBytes(StandardCharsets.UTF_8));
        message.setBornTimestamp(System.currentTimeMillis());
        message.setBornHost(new InetSocketAddress("127.0.0.1", 1));
        message.setStoreHost(new InetSocketAddress("127.0.0.1", 2));
        message.putUserProperty("from", "test"); // which makes the map that hooks want
        if (level > 0) {
            message.setDelayTimeLevel(level);
        }
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
        return store.putMessage(message).getPutMessageStatus().name();
    }

    Map<String, String> encoded() {
        return Map.of("topics.json", topics.toJson(), "subscriptionGroup.json", groups.toJson(),
            "consumerOffset.json", offsets.toJson(), "delayOffset.json", store.getScheduleMessageService().encode());
    }

    long end() {
        return store.getMaxPhyOffset();
    }

    void shutdown() {
        server.shutdown();
        store.shutdown();
        threads.shutdown();
    }
}
