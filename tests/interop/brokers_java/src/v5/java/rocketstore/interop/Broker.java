package rocketstore.interop;

import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** A whole broker of RocketMQ 5, without a name server. */
final class Broker {
    private final BrokerController controller;

    Broker(MessageStoreConfig store, int port) throws Exception {
        BrokerConfig config = new BrokerConfig();
        config.setBrokerIP1("127.0.0.1");
        config.setListenPort(port);
        config.setAutoCreateTopicEnable(false);
        NettyServerConfig server = new NettyServerConfig();
        server.setListenPort(port);
        store.setEnableCompaction(false);
        store.setTimerWheelEnable(false);
        controller = new BrokerController(config, server, new NettyClientConfig(), store);
        if (!controller.initialize()) {
            throw new IllegalStateException("initialize() said no");
        }
        controller.start();
    }

    void topic(String name) {
        controller.getTopicConfigManager().updateTopicConfig(new TopicConfig(name, 4, 4));
    }

    void group(String name) {
        SubscriptionGroupConfig group = new SubscriptionGroupConfig();
        group.setGroupName(name);
        controller.getSubscriptionGroupManager().updateSubscriptionGroupConfig(group);
    }

    void commit(String group, String topic, int queueId, long offset) {
        controller.getConsumerOffsetManager().commitOffset("test", group, topic, queueId, offset);
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
        return controller.getMessageStore().putMessage(message).getPutMessageStatus().name();
    }

    Map<String, String> encoded() {
        return Map.of("topics.json", controller.getTopicConfigManager().encode(),
            "subscriptionGroup.json", controller.getSubscriptionGroupManager().encode(),
            "consumerOffset.json", controller.getConsumerOffsetManager().encode(),
            "delayOffset.json", controller.getScheduleMessageService().encode());
    }

    long end() {
        return controller.getMessageStore().getMaxPhyOffset();
    }

    void shutdown() {
        controller.shutdown();
    }
}
