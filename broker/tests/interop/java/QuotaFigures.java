import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.StringJoiner;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.metrics.stats.Rate;
import org.apache.kafka.common.metrics.stats.TokenBucket;
import org.apache.kafka.common.utils.Sanitizer;

/**
 * Answers each line of the input with one line. "rate WINDOWS MS STEP..." and "bucket WINDOWS MS QUOTA STEP..." have
 * steps TIME:AMOUNT, which record, and TIME, which adds a figure to the answer: rate/window, or tokens. "name BASE64"
 * is answered with the name as it is in znodes.
 */
public class QuotaFigures {
    public static void main(String[] arguments) throws Exception {
        var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "rate" -> System.out.println(rate(words));
                case "bucket" -> System.out.println(bucket(words));
                default -> System.out.println(Sanitizer.sanitize(
                        new String(Base64.getDecoder().decode(words[1]), StandardCharsets.UTF_8)));
            }
        }
    }

    private static MetricConfig config(String[] words) {
        return new MetricConfig()
                .samples(Integer.parseInt(words[1]))
                .timeWindow(Long.parseLong(words[2]), TimeUnit.MILLISECONDS);
    }

    private static String rate(String[] words) {
        var config = config(words);
        var rate = new Rate();
        var figures = new StringJoiner(" ");
        for (int i = 3; i < words.length; i++) {
            String[] step = words[i].split(":");
            long time = Long.parseLong(step[0]);
            if (step.length == 2) {
                rate.record(config, Double.parseDouble(step[1]), time);
            } else {
                figures.add(rate.measure(config, time) + "/" + rate.windowSize(config, time));
            }
        }
        return figures.toString();
    }

    private static String bucket(String[] words) {
        var config = config(words).quota(Quota.upperBound(Double.parseDouble(words[3])));
        var bucket = new TokenBucket();
        var figures = new StringJoiner(" ");
        for (int i = 4; i < words.length; i++) {
            String[] step = words[i].split(":");
            long time = Long.parseLong(step[0]);
            if (step.length == 2) {
                bucket.record(config, Double.parseDouble(step[1]), time);
            } else {
                figures.add(Double.toString(bucket.measure(config, time)));
            }
        }
        return figures.toString();
    }
}
