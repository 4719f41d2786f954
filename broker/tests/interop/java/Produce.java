import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import java.util.function.Consumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;

/** The Java producer, which every version from 0.8.2 on has. Tells the offsets that it was given. */
public class Produce implements Client.Command {
    @Override
    public void run(Map<String, String> arguments, Consumer<String> tell) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments.get("bootstrap"));
        properties.put("acks", arguments.get("acks"));
        properties.put("compression.type", arguments.get("codec"));
        properties.put("linger.ms", "100");
        properties.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        properties.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        KafkaProducer<String, String> producer = new KafkaProducer<>(properties);
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        int count = Integer.parseInt(arguments.get("count"));
        for (int number = 0; number < count; number++) {
            String value = number == count - 1 ? null : arguments.get("value") + number;
            sent.add(producer.send(new ProducerRecord<String, String>(
                arguments.get("topic"), 0, arguments.get("key") + number, value)));
        }
        for (Future<RecordMetadata> each : sent) {
            tell.accept(Long.toString(each.get().offset()));
        }
        producer.close();
    }
}
