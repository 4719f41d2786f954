import java.nio.ByteBuffer;
import java.util.Collections;
import java.util.Map;
import java.util.function.Consumer;
import kafka.api.FetchRequestBuilder;
import kafka.api.PartitionOffsetRequestInfo;
import kafka.common.TopicAndPartition;
import kafka.javaapi.FetchResponse;
import kafka.javaapi.OffsetRequest;
import kafka.javaapi.consumer.SimpleConsumer;
import kafka.message.MessageAndOffset;

/** SimpleConsumer of 0.8, which stayed until 1.1: offsets by ListOffsets 0, then records by the version's Fetch. */
public class OldConsume implements Client.Command {
    @Override
    public void run(Map<String, String> arguments, Consumer<String> tell) {
        String topic = arguments.get("topic");
        String[] address = arguments.get("bootstrap").split(":");
        SimpleConsumer consumer =
            new SimpleConsumer(address[0], Integer.parseInt(address[1]), 30_000, 1 << 16, "simple");
        long end = before(consumer, topic, kafka.api.OffsetRequest.LatestTime());
        if (end != Long.parseLong(arguments.get("end"))) {
            throw new IllegalStateException("the end is said to be " + end);
        }
        long position = before(consumer, topic, kafka.api.OffsetRequest.EarliestTime());
        int size = Integer.parseInt(arguments.get("bytes"));
        while (position < end) {
            FetchResponse response = consumer.fetch(
                new FetchRequestBuilder().clientId("simple").addFetch(topic, 0, position, size).build());
            if (response.hasError()) {
                throw new IllegalStateException("error " + response.errorCode(topic, 0) + " at " + position);
            }
            if (response.messageSet(topic, 0).sizeInBytes() == 0) {
                throw new IllegalStateException("nothing at " + position + " of " + end);
            }
            long before = position;
            for (MessageAndOffset message : response.messageSet(topic, 0)) {
                if (message.offset() >= position) {
                    byte[] key = bytes(message.message().key());
                    tell.accept(Client.record(message.offset(), -1, key, bytes(message.message().payload())));
                    position = message.nextOffset();
                }
            }
            if (position == before) {
                tell.accept("too large");
                break;
            }
        }
        consumer.close();
    }

    private static long before(SimpleConsumer consumer, String topic, long time) {
        TopicAndPartition partition = new TopicAndPartition(topic, 0);
        OffsetRequest request = new OffsetRequest(
            Collections.singletonMap(partition, new PartitionOffsetRequestInfo(time, 1)), (short) 0, "simple");
        return consumer.getOffsetsBefore(request).offsets(topic, 0)[0];
    }

    private static byte[] bytes(ByteBuffer buffer) {
        if (buffer == null) {
            return null;
        }
        byte[] data = new byte[buffer.remaining()];
        buffer.get(data);
        return data;
    }
}
