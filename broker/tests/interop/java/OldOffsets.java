import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import java.util.function.Consumer;
import kafka.api.ConsumerMetadataRequest;
import kafka.common.ErrorMapping;
import kafka.common.OffsetAndMetadata;
import kafka.common.OffsetMetadataAndError;
import kafka.common.TopicAndPartition;
import kafka.javaapi.ConsumerMetadataResponse;
import kafka.javaapi.OffsetCommitRequest;
import kafka.javaapi.OffsetFetchRequest;
import kafka.javaapi.consumer.SimpleConsumer;
import kafka.network.BlockingChannel;

/** Commits an offset and fetches it in a given version: 0 stores it in ZooKeeper, 1 at the group's coordinator. */
public class OldOffsets implements Client.Command {
    private static final int TIMEOUT_MS = 30_000;

    @Override
    public void run(Map<String, String> arguments, Consumer<String> tell) {
        String[] address = arguments.get("bootstrap").split(":");
        String host = address[0];
        int port = Integer.parseInt(address[1]);
        short version = Short.parseShort(arguments.get("version"));
        String group = arguments.get("group");
        if (version > 0) awaitCoordinator(host, port, group);
        SimpleConsumer consumer = new SimpleConsumer(host, port, TIMEOUT_MS, 1 << 16, "simple");
        TopicAndPartition partition = new TopicAndPartition(arguments.get("topic"), 0);
        Map<TopicAndPartition, OffsetAndMetadata> offsets = new HashMap<>();
        offsets.put(partition, new OffsetAndMetadata(Long.parseLong(arguments.get("offset")), "", -1));
        Object code = consumer.commitOffsets(new OffsetCommitRequest(group, offsets, 1, "simple", version))
            .errors().get(partition);
        OffsetMetadataAndError found = consumer.fetchOffsets(
            new OffsetFetchRequest(group, Collections.singletonList(partition), version, 2, "simple"))
            .offsets().get(partition);
        tell.accept(code + " " + found.offset() + " " + found.error());
        consumer.close();
    }

    /** The first request for a coordinator creates the offsets topic, so the answer is an error until it is loaded. */
    private static void awaitCoordinator(String host, int port, String group) {
        BlockingChannel channel = new BlockingChannel(host, port, 1 << 16, 1 << 16, TIMEOUT_MS);
        channel.connect();
        long deadline = System.nanoTime() + TIMEOUT_MS * 1_000_000L;
        short code;
        do {
            channel.send(new ConsumerMetadataRequest(group, (short) 0, 1, "simple"));
            code = ConsumerMetadataResponse.readFrom(channel.receive().buffer()).errorCode();
        } while (code != ErrorMapping.NoError() && System.nanoTime() < deadline);
        channel.disconnect();
        if (code != ErrorMapping.NoError()) throw new IllegalStateException("no coordinator: error " + code);
    }
}
