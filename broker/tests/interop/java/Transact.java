import java.util.Collections;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;

/**
 * Runs numbered transactions, one after the other: each writes a record to three partitions and commits an offset.
 * Every fourth one is aborted first. One that fails is aborted and repeated.
 * Arguments: bootstrap servers, topic, transactional id, number of transactions.
 */
public class Transact {
    static final int PARTITIONS = 3;

    public static void main(String[] arguments) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("transactional.id", arguments[2]);
        properties.put("transaction.timeout.ms", "20000");
        properties.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        properties.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        KafkaProducer<String, String> producer = new KafkaProducer<>(properties);
        producer.initTransactions();
        int count = Integer.parseInt(arguments[3]);
        for (int number = 0; number < count; number++) {
            if (number % 4 == 3) {
                producer.beginTransaction();
                fill(producer, arguments[1], "aborted-" + number, number);
                producer.abortTransaction();
            }
            while (!committed(producer, arguments[1], arguments[2], number)) {
                System.out.println("repeats " + number);
            }
            System.out.println("committed " + number);
            System.out.flush();
        }
        producer.close();
    }

    /** Runs one transaction. Returns false if it was aborted because of an error. */
    static boolean committed(KafkaProducer<String, String> producer, String topic, String name, int number) {
        producer.beginTransaction();
        try {
            fill(producer, topic, name + "-" + number, number);
            producer.sendOffsetsToTransaction(
                Collections.singletonMap(new TopicPartition(topic, 0), new OffsetAndMetadata(number + 1)),
                new ConsumerGroupMetadata(name));
        } catch (KafkaException error) {
            producer.abortTransaction();
            return false;
        }
        while (true) {
            try {
                producer.commitTransaction();
                return true;
            } catch (TimeoutException error) {
                System.out.println("commits again " + number);
            } catch (KafkaException error) {
                producer.abortTransaction();
                return false;
            }
        }
    }

    static void fill(KafkaProducer<String, String> producer, String topic, String value, int number) {
        for (int partition = 0; partition < PARTITIONS; partition++) {
            producer.send(new ProducerRecord<>(topic, partition, null, value));
        }
    }
}
