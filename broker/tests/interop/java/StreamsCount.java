import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Produced;

/**
 * A Kafka Streams application that counts words exactly once. Arguments: bootstrap servers, application id, directory
 * of the state.
 *
 * <p>The key changes before the count, so there is a repartition topic, and the counts have a changelog topic. Without a
 * cache, each record of the input adds one record to the output, with the count so far.
 */
public class StreamsCount {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("application.id", arguments[1]);
        properties.put("state.dir", arguments[2]);
        properties.put("processing.guarantee", "exactly_once_v2");
        properties.put("replication.factor", "3");
        properties.put("commit.interval.ms", "200");
        properties.put("statestore.cache.max.bytes", "0");
        properties.put("consumer.auto.offset.reset", "earliest");
        // Members and transactions of a killed process must not hold up the others for long.
        properties.put("consumer.session.timeout.ms", "6000");
        properties.put("consumer.heartbeat.interval.ms", "1000");
        properties.put("producer.transaction.timeout.ms", "10000");

        StreamsBuilder builder = new StreamsBuilder();
        builder.stream("words", Consumed.with(Serdes.String(), Serdes.String()))
                .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
                .count()
                .toStream()
                .mapValues(count -> Long.toString(count))
                .to("counts", Produced.with(Serdes.String(), Serdes.String()));
        KafkaStreams streams = new KafkaStreams(builder.build(), properties);
        // A task that loses its transaction or its coordinator for long starts again, as in production.
        streams.setUncaughtExceptionHandler(
                error -> StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse.REPLACE_THREAD);
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
        Thread.currentThread().join();
    }
}
