package rocketstore.interop;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonPrimitive;
import java.io.File;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.nio.ByteBuffer;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** Makes a store from RocketMQ's option names. */
final class Stores {
    private Stores() {
    }

    static DefaultMessageStore make(String path, JsonObject options) throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(path);
        config.setStorePathCommitLog(path + File.separator + "commitlog");
        config.setHaListenPort(0); // a free one
        config.setDiskMaxUsedSpaceRatio(95);
        Generation.prepare(config);
        for (Map.Entry<String, JsonElement> option : options.entrySet()) {
            set(config, option.getKey(), option.getValue().getAsJsonPrimitive());
        }
        DefaultMessageStore store = Generation.newStore(config);
        if (config.isEnableConsumeQueueExt()) { // as the broker's filter does, which is not the store
            store.getDispatcherList().addFirst(request -> request.setBitMap(
                ByteBuffer.allocate(Long.BYTES).putLong(~request.getConsumeQueueOffset()).array()));
        }
        return store;
    }

    /** Every option of this release, with its default. */
    static Map<String, String> options() throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        Map<String, String> found = new TreeMap<>();
        for (Field field : MessageStoreConfig.class.getDeclaredFields()) {
            if (!Modifier.isStatic(field.getModifiers())) {
                field.setAccessible(true);
                found.put(field.getName(), String.valueOf(field.get(config)));
            }
        }
        return found;
    }

    private static void set(MessageStoreConfig config, String name, JsonPrimitive value) throws Exception {
        String setter = "set" + Character.toUpperCase(name.charAt(0)) + name.substring(1);
        for (Method method : MessageStoreConfig.class.getMethods()) {
            if (!method.getName().equals(setter) || method.getParameterCount() != 1) {
                continue;
            }
            Class<?> type = method.getParameterTypes()[0];
            if (type == int.class) {
                method.invoke(config, value.getAsInt());
            } else if (type == long.class) {
                method.invoke(config, value.getAsLong());
            } else if (type == boolean.class) {
                method.invoke(config, value.getAsBoolean());
            } else if (type == String.class) {
                method.invoke(config, value.getAsString());
            } else {
                continue;
            }
            return;
        }
        throw new IllegalArgumentException("no option " + name);
    }
}
