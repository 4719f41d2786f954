import java.util.Arrays;
import java.util.Map;
import java.util.Properties;
import java.util.function.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;

/** The Java consumer, which works from 0.9 on. Tells the records from the start to the given end, and commits. */
public class Consume implements Client.Command {
    @Override
    public void run(Map<String, String> arguments, Consumer<String> tell) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments.get("bootstrap"));
        properties.put("group.id", arguments.get("group"));
        properties.put("auto.offset.reset", "earliest");
        properties.put("enable.auto.commit", "false");
        properties.put("max.partition.fetch.bytes", arguments.get("bytes"));
        properties.put("key.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        properties.put("value.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(properties);
        TopicPartition partition = new TopicPartition(arguments.get("topic"), 0);
        consumer.assign(Arrays.asList(partition));
        long end = Long.parseLong(arguments.get("end"));
        long deadline = System.currentTimeMillis() + 60_000;
        while (consumer.position(partition) < end) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("stays at " + consumer.position(partition) + " of " + end);
            }
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(200)) {
                tell.accept(Client.record(record.offset(), Times.of(record), record.key(), record.value()));
            }
        }
        consumer.commitSync();
        if (consumer.committed(partition).offset() != end) {
            throw new IllegalStateException("committed " + consumer.committed(partition));
        }
        consumer.close();
    }
}
