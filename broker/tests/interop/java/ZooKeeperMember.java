import java.util.Collections;
import java.util.Properties;
import kafka.consumer.ConsumerConfig;
import kafka.consumer.KafkaStream;
import kafka.javaapi.consumer.ConsumerConnector;
import kafka.message.MessageAndMetadata;

/**
 * A member of a group of 0.8 with one stream. It prints "record PARTITION OFFSET" for each message, until its standard
 * input ends; then it leaves the group. Arguments: topic, then properties as name=value.
 */
public class ZooKeeperMember {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        for (int index = 1; index < arguments.length; index++) {
            String[] pair = arguments[index].split("=", 2);
            properties.put(pair[0], pair[1]);
        }
        ConsumerConnector connector = kafka.consumer.Consumer.createJavaConsumerConnector(new ConsumerConfig(properties));
        Thread leaving = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                }
            } catch (java.io.IOException ended) {
                // The end of the input, too.
            }
            connector.shutdown();
        });
        KafkaStream<byte[], byte[]> stream =
            connector.createMessageStreams(Collections.singletonMap(arguments[0], 1)).get(arguments[0]).get(0);
        leaving.start();
        for (MessageAndMetadata<byte[], byte[]> message : stream) {
            System.out.println("record " + message.partition() + " " + message.offset());
            System.out.flush();
        }
        leaving.join();
        System.exit(0);
    }
}
