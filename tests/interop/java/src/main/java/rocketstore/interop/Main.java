package rocketstore.interop;

import com.google.gson.Gson;
import com.google.gson.JsonObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;

/** Answers each line of stdin, a JSON request, with one line of stdout. Everything else goes to stderr. */
public final class Main {
    private Main() {
    }

    public static void main(String[] words) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        Generation.reportTo(Warnings::add);
        Gson gson = new Gson();
        Requests requests = new Requests();
        BufferedReader lines =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8), 1 << 20);
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonObject answer;
            try {
                answer = requests.answer(gson.fromJson(line, JsonObject.class));
            } catch (Throwable failure) {
                failure.printStackTrace();
                answer = new JsonObject();
                answer.addProperty("failed", failure.toString());
            }
            answers.println(gson.toJson(answer));
        }
        // The other side is gone. A store left open is a crashed one.
        Runtime.getRuntime().halt(0);
    }
}
