package rocketstore.interop;

import com.google.gson.Gson;
import com.google.gson.JsonObject;
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.rocketmq.store.config.BrokerRole;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** One broker. Answers each line of stdin, a JSON request, with one line of stdout. */
public final class Brokers {
    private Brokers() {
    }

    public static void main(String[] words) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        Gson gson = new Gson();
        Broker broker = new Broker(store(words[0], Integer.parseInt(words[2])), Integer.parseInt(words[1]));
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        answers.println("{}");
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonObject answer = new JsonObject();
            try {
                answer(broker, gson.fromJson(line, JsonObject.class), answer);
            } catch (Throwable failure) {
                failure.printStackTrace();
                answer.addProperty("failed", failure.toString());
            }
            answers.println(gson.toJson(answer));
        }
        Runtime.getRuntime().halt(0);
    }

    private static MessageStoreConfig store(String path, int haPort) {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(path);
        config.setStorePathCommitLog(path + File.separator + "commitlog");
        config.setHaListenPort(haPort);
        config.setHaSendHeartbeatInterval(100);
        config.setMappedFileSizeCommitLog(1 << 20);
        config.setMappedFileSizeConsumeQueue(20 * 1000);
        config.setMaxHashSlotNum(1000);
        config.setMaxIndexNum(4000);
        config.setMessageDelayLevel("1s 2s 1h");
        config.setBrokerRole(BrokerRole.ASYNC_MASTER);
        config.setDiskMaxUsedSpaceRatio(95);
        return config;
    }

    private static void answer(Broker broker, JsonObject request, JsonObject answer) throws Exception {
        switch (request.get("verb").getAsString()) {
            case "topic":
                broker.topic(request.get("name").getAsString());
                break;
            case "group":
                broker.group(request.get("name").getAsString());
                break;
            case "commit":
                broker.commit(request.get("group").getAsString(), request.get("topic").getAsString(),
                    request.get("queue_id").getAsInt(), request.get("offset").getAsLong());
                break;
            case "put":
                answer.addProperty("status", broker.put(request.get("topic").getAsString(),
                    request.get("body").getAsString(), request.get("level").getAsInt()));
                break;
            case "encode":
                for (Map.Entry<String, String> one : broker.encoded().entrySet()) {
                    answer.addProperty(one.getKey(), one.getValue());
                }
                break;
            case "end":
                answer.addProperty("max_offset", broker.end());
                break;
            case "shutdown":
                broker.shutdown();
                break;
            default:
                throw new IllegalArgumentException(request.toString());
        }
    }
}
