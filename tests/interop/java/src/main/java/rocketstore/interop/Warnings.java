package rocketstore.interop;

import java.util.ArrayList;
import java.util.List;

/** What the store logged as a warning or an error since somebody last asked. */
final class Warnings {
    private static final List<String> LINES = new ArrayList<>();

    private Warnings() {
    }

    static synchronized void add(String line) {
        LINES.add(line);
    }

    static synchronized List<String> take() {
        List<String> taken = new ArrayList<>(LINES);
        LINES.clear();
        return taken;
    }
}
