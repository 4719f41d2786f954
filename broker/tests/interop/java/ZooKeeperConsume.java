import java.util.Collections;
import java.util.Map;
import java.util.Properties;
import java.util.function.Consumer;
import kafka.consumer.ConsumerConfig;
import kafka.consumer.KafkaStream;
import kafka.javaapi.consumer.ConsumerConnector;
import kafka.message.MessageAndMetadata;

/** The consumer of 0.8 that finds brokers, topics and its group in ZooKeeper; it stayed until 1.1. */
public class ZooKeeperConsume implements Client.Command {
    @Override
    public void run(Map<String, String> arguments, Consumer<String> tell) {
        Properties properties = new Properties();
        properties.put("zookeeper.connect", arguments.get("zookeeper"));
        properties.put("group.id", arguments.get("group"));
        properties.put("offsets.storage", arguments.get("storage"));
        properties.put("dual.commit.enabled", "false");
        properties.put("auto.offset.reset", "smallest");
        properties.put("auto.commit.enable", "false");
        properties.put("consumer.timeout.ms", "30000");
        properties.put("fetch.message.max.bytes", arguments.get("bytes"));
        ConsumerConnector connector = kafka.consumer.Consumer.createJavaConsumerConnector(new ConsumerConfig(properties));
        try {
            String topic = arguments.get("topic");
            KafkaStream<byte[], byte[]> stream =
                connector.createMessageStreams(Collections.singletonMap(topic, 1)).get(topic).get(0);
            long end = Long.parseLong(arguments.get("end"));
            for (MessageAndMetadata<byte[], byte[]> message : stream) {
                tell.accept(Client.record(message.offset(), -1, message.key(), message.message()));
                if (message.offset() + 1 == end) {
                    break;
                }
            }
            connector.commitOffsets();
        } finally {
            connector.shutdown();
        }
    }
}
