import java.time.Duration;
import java.util.Arrays;
import java.util.Collections;
import java.util.Properties;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RetriableException;

/**
 * A member of a group, from Java 2.7 on, until it is killed. Arguments: bootstrap servers, group, topic, and further
 * settings as name=value.
 *
 * <p>It prints "assigned GENERATION PARTITION..." whenever its generation or its assignment has changed, and
 * "records PARTITION FIRST LAST" for records that it has received.
 */
public class GroupMember {
    public static void main(String[] arguments) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("group.id", arguments[1]);
        properties.put("auto.offset.reset", "earliest");
        properties.put("enable.auto.commit", "false");
        properties.put("key.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        properties.put("value.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        for (String setting : Arrays.asList(arguments).subList(3, arguments.length)) {
            int end = setting.indexOf('=');
            properties.put(setting.substring(0, end), setting.substring(end + 1));
        }
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(properties);
        consumer.subscribe(Collections.singletonList(arguments[2]));
        String told = "";
        while (true) {
            ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(200));
            StringBuilder now = new StringBuilder("assigned " + consumer.groupMetadata().generationId());
            TreeSet<Integer> partitions = new TreeSet<>();
            for (TopicPartition partition : consumer.assignment()) {
                partitions.add(partition.partition());
            }
            for (int partition : partitions) {
                now.append(' ').append(partition);
            }
            if (!now.toString().equals(told)) {
                told = now.toString();
                System.out.println(told);
            }
            for (TopicPartition partition : records.partitions()) {
                java.util.List<ConsumerRecord<byte[], byte[]>> got = records.records(partition);
                System.out.println("records " + partition.partition() + " " + got.get(0).offset() + " "
                        + got.get(got.size() - 1).offset());
            }
            try {
                consumer.commitSync();
            } catch (org.apache.kafka.clients.consumer.CommitFailedException | RetriableException error) {
                System.out.println("commit failed: " + error.getClass().getSimpleName());
            }
        }
    }
}
