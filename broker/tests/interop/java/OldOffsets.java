import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import java.util.function.Consumer;
import kafka.common.OffsetAndMetadata;
import kafka.common.OffsetMetadataAndError;
import kafka.common.TopicAndPartition;
import kafka.javaapi.OffsetCommitRequest;
import kafka.javaapi.OffsetFetchRequest;
import kafka.javaapi.consumer.SimpleConsumer;

/** OffsetCommit and OffsetFetch in a version of one's choice: 0 means ZooKeeper. Tells what is fetched. */
public class OldOffsets implements Client.Command {
    @Override
    public void run(Map<String, String> arguments, Consumer<String> tell) {
        String[] address = arguments.get("bootstrap").split(":");
        SimpleConsumer consumer =
            new SimpleConsumer(address[0], Integer.parseInt(address[1]), 30_000, 1 << 16, "simple");
        TopicAndPartition partition = new TopicAndPartition(arguments.get("topic"), 0);
        short version = Short.parseShort(arguments.get("version"));
        String group = arguments.get("group");
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
}
