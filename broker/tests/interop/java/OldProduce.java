import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.function.Consumer;
import kafka.javaapi.producer.Producer;
import kafka.producer.KeyedMessage;
import kafka.producer.ProducerConfig;

/** The Scala producer of 0.8, which stayed until 1.1. */
public class OldProduce implements Client.Command {
    @Override
    public void run(Map<String, String> arguments, Consumer<String> tell) {
        Properties properties = new Properties();
        properties.put("metadata.broker.list", arguments.get("bootstrap"));
        properties.put("serializer.class", "kafka.serializer.StringEncoder");
        properties.put("request.required.acks", arguments.get("acks"));
        properties.put("compression.codec", arguments.get("codec"));
        Producer<String, String> producer = new Producer<>(new ProducerConfig(properties));
        List<KeyedMessage<String, String>> messages = new ArrayList<>();
        int count = Integer.parseInt(arguments.get("count"));
        for (int number = 0; number < count; number++) {
            String value = number == count - 1 ? null : arguments.get("value") + number;
            messages.add(new KeyedMessage<>(arguments.get("topic"), arguments.get("key") + number, value));
        }
        producer.send(messages);
        producer.close();
    }
}
