import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.function.Consumer;

/**
 * One old client, driven line by line: a command with its arguments comes in by standard input, `= value` lines and
 * then `done` or `failed` go out. The class that does the work is the command's first word, so that a version is
 * compiled with the classes that it can have.
 */
public class Client {
    /** Something that a version can do. */
    public interface Command {
        /** Carries it out; each result is told with `tell`. */
        void run(Map<String, String> arguments, Consumer<String> tell) throws Exception;
    }

    public static void main(String[] ignored) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            Map<String, String> arguments = new HashMap<>();
            for (int index = 1; index < words.length; index++) {
                String[] pair = words[index].split("=", 2);
                arguments.put(pair[0], pair[1]);
            }
            try {
                Command command = (Command) Class.forName(words[0]).getDeclaredConstructor().newInstance();
                command.run(arguments, told -> System.out.println("= " + told));
                System.out.println("done");
            } catch (Throwable error) {
                error.printStackTrace();
                System.out.println("failed " + error);
            }
            System.out.flush();
        }
        System.exit(0);
    }

    /** A record as every version tells it. */
    static String record(long offset, long timestamp, byte[] key, byte[] value) {
        return offset + " " + timestamp + " " + text(key) + " " + text(value);
    }

    private static String text(byte[] data) {
        return data == null ? "null" : new String(data, StandardCharsets.UTF_8);
    }
}
