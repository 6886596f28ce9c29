package rocketstore.bench;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Random;
import net.openhft.chronicle.bytes.Bytes;
import net.openhft.chronicle.queue.ChronicleQueue;
import net.openhft.chronicle.queue.ExcerptAppender;
import net.openhft.chronicle.queue.ExcerptTailer;
import net.openhft.chronicle.wire.DocumentContext;

/** Does to a Chronicle Queue what a line of words says, and answers with nanoseconds. Raw documents, one thread. */
public final class Chronicle {
    private static ChronicleQueue queue;

    private Chronicle() {
    }

    public static void main(String[] none) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            try {
                System.out.println(answer(line.split(" ")));
            } catch (Throwable thrown) {
                thrown.printStackTrace();
                System.exit(1); // the threads of the queue would keep the process
            }
            System.out.flush();
        }
        System.exit(0);
    }

    private static long answer(String[] words) {
        switch (words[0]) {
            case "open":
                queue = ChronicleQueue.single(words[1]);
                return 0;
            case "append":
                return append(Integer.parseInt(words[1]), Integer.parseInt(words[2]));
            case "read":
                return read(Integer.parseInt(words[1]), Integer.parseInt(words[2]));
            case "close":
                queue.close();
                queue = null;
                return 0;
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private static long append(int count, int size) {
        byte[][] bodies = new byte[256][size];
        Random random = new Random(1);
        for (byte[] body : bodies) {
            random.nextBytes(body);
        }
        try (ExcerptAppender appender = queue.createAppender()) {
            long began = System.nanoTime();
            for (int n = 0; n < count; n++) {
                try (DocumentContext document = appender.writingDocument()) {
                    document.wire().bytes().write(bodies[n & 255]);
                }
            }
            return System.nanoTime() - began;
        }
    }

    /** Every document copied out. */
    private static long read(int count, int size) {
        byte[] body = new byte[size];
        int found = 0;
        try (ExcerptTailer tailer = queue.createTailer()) {
            long began = System.nanoTime();
            while (true) {
                try (DocumentContext document = tailer.readingDocument()) {
                    if (!document.isPresent()) {
                        break;
                    }
                    Bytes<?> bytes = document.wire().bytes();
                    if (bytes.readRemaining() < size || bytes.read(body) != size) {
                        throw new IllegalStateException("document " + found);
                    }
                    found++;
                }
            }
            if (found != count) {
                throw new IllegalStateException(found + " of " + count + " documents");
            }
            return System.nanoTime() - began;
        }
    }
}
