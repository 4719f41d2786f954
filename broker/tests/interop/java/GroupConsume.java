import java.time.Duration;
import java.util.Collection;
import java.util.Collections;
import java.util.Properties;
import java.util.TreeSet;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;

/**
 * A member of a group: bootstrap, group, topic and assignor are its arguments. It tells its records and the changes of
 * its assignment line by line, and leaves the group when standard input ends.
 */
public class GroupConsume {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("group.id", arguments[1]);
        properties.put("partition.assignment.strategy", arguments[3]);
        properties.put("auto.offset.reset", "earliest");
        properties.put("heartbeat.interval.ms", "100");
        properties.put("key.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        properties.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        AtomicBoolean isOver = new AtomicBoolean();
        Thread reader = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                    continue;
                }
            } catch (java.io.IOException error) {
                error.printStackTrace();
            }
            isOver.set(true);
        });
        reader.setDaemon(true);
        reader.start();
        try (KafkaConsumer<byte[], String> consumer = new KafkaConsumer<>(properties)) {
            consumer.subscribe(Collections.singletonList(arguments[2]), new ConsumerRebalanceListener() {
                @Override
                public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                    tell("revoked", partitions);
                }

                @Override
                public void onPartitionsLost(Collection<TopicPartition> partitions) {
                    tell("lost", partitions);
                }

                @Override
                public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                    tell("assigned", partitions);
                }
            });
            while (!isOver.get()) {
                for (ConsumerRecord<byte[], String> record : consumer.poll(Duration.ofMillis(100))) {
                    System.out.println("record " + record.value());
                }
            }
        }
        System.exit(0);
    }

    private static void tell(String event, Collection<TopicPartition> partitions) {
        TreeSet<Integer> numbers = partitions.stream().map(TopicPartition::partition)
            .collect(Collectors.toCollection(TreeSet::new));
        System.out.println(event + " " + numbers.stream().map(String::valueOf).collect(Collectors.joining(",")));
    }
}
