import java.time.Duration;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.mirror.MirrorClient;
import org.apache.kafka.connect.mirror.RemoteClusterUtils;

/**
 * Reads what a mirror has written with the client library of MirrorMaker 2. Arguments: address of the target, alias of
 * the source, group. Prints the translated offsets, the checkpoint topics and the copied topics.
 */
public class MirrorReader {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", arguments[0]);
        Map<TopicPartition, OffsetAndMetadata> offsets = RemoteClusterUtils.translateOffsets(
                settings, arguments[1], arguments[2], Duration.ofSeconds(60));
        Map<String, String> sorted = new TreeMap<>();
        offsets.forEach((partition, position) ->
                sorted.put(partition.toString(), position.offset() + " " + position.metadata()));
        sorted.forEach((partition, position) -> System.out.println(partition + " " + position));
        try (MirrorClient client = new MirrorClient(settings)) {
            System.out.println("checkpoints " + new TreeSet<>(client.checkpointTopics()));
            System.out.println("heartbeats " + new TreeSet<>(client.heartbeatTopics()));
            System.out.println("copies " + new TreeSet<>(client.remoteTopics(arguments[1])));
        }
    }
}
