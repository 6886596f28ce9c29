package rocketstore.interop;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.filter.expression.BooleanExpression;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.parser.SelectorParser;

/** Evaluates each expression for each message, in which a broker's context has the properties alone. */
public final class Filters {
    private static final Gson GSON = new GsonBuilder().serializeNulls().create();

    private Filters() {
    }

    /** What stdin asks. */
    private static final class Request {
        private List<String> expressions;
        private List<Map<String, String>> messages;
    }

    public static void main(String[] words) {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        Request request =
            GSON.fromJson(new InputStreamReader(System.in, StandardCharsets.UTF_8), Request.class);
        for (String expression : request.expressions) {
            answers.println(GSON.toJson(verdicts(expression, request.messages)));
        }
    }

    /** One for each message: true, false, null or "error"; the text "refused" for what is no expression. */
    private static Object verdicts(String expression, List<Map<String, String>> messages) {
        BooleanExpression parsed;
        try {
            parsed = SelectorParser.parse(expression);
        } catch (Exception refusal) {
            return "refused";
        }
        List<Object> found = new ArrayList<>();
        for (Map<String, String> message : messages) {
            try {
                found.add(parsed.evaluate(context(message)));
            } catch (Throwable failure) {
                found.add("error");
            }
        }
        return found;
    }

    private static EvaluationContext context(Map<String, String> message) {
        return new EvaluationContext() {
            @Override
            public Object get(String name) {
                return message.get(name);
            }

            @Override
            public Map<String, Object> keyValues() {
                return new HashMap<>(message);
            }
        };
    }
}
