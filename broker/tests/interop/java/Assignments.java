import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.AbstractPartitionAssignor;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/**
 * The results of assignors. Each line of standard input is a group: the assignor, topics such as a=r1+r2|r1|,b= with the
 * racks of the replicas of each partition, and for each member its id, topics, user data in hexadecimal digits, owned
 * partitions such as a/0, generation and rack.
 */
public class Assignments {
    public static void main(String[] ignored) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            AbstractPartitionAssignor assignor = words[0].equals("range") ? new RangeAssignor()
                : words[0].equals("sticky") ? new StickyAssignor() : new CooperativeStickyAssignor();
            Map<String, List<PartitionInfo>> topics = new HashMap<>();
            for (String topic : words[1].split(",")) {
                topics.put(topic.split("=")[0], partitions(topic.split("=")[0], topic.split("=", -1)[1]));
            }
            Map<String, Subscription> members = new HashMap<>();
            for (String member : Arrays.copyOfRange(words, 2, words.length)) {
                String[] parts = member.split(":", -1);
                ByteBuffer userData = parts[2].isEmpty() ? null : ByteBuffer.wrap(HexFormat.of().parseHex(parts[2]));
                members.put(parts[0], new Subscription(Arrays.asList(parts[1].split(",")), userData,
                    owned(parts[3]), Integer.parseInt(parts[4]),
                    parts[5].isEmpty() ? Optional.empty() : Optional.of(parts[5])));
            }
            Map<String, TreeSet<String>> found = new TreeMap<>();
            assignor.assignPartitions(topics, members).forEach((member, partitions) -> {
                found.put(member, new TreeSet<>());
                partitions.forEach(each -> found.get(member).add(each.topic() + "/" + each.partition()));
            });
            List<String> result = new ArrayList<>();
            found.forEach((member, partitions) -> result.add(member + ":" + String.join(",", partitions)));
            System.out.println(String.join(" ", result));
        }
    }

    private static List<PartitionInfo> partitions(String topic, String racks) {
        List<PartitionInfo> found = new ArrayList<>();
        for (String partition : racks.split("\\|", -1)) {
            List<Node> replicas = new ArrayList<>();
            for (String rack : partition.isEmpty() ? new String[0] : partition.split("\\+")) {
                replicas.add(new Node(replicas.size(), "localhost", 9092, rack));
            }
            Node[] nodes = replicas.toArray(new Node[0]);
            found.add(new PartitionInfo(topic, found.size(), null, nodes, nodes));
        }
        return found;
    }

    private static List<TopicPartition> owned(String text) {
        List<TopicPartition> found = new ArrayList<>();
        for (String each : text.isEmpty() ? new String[0] : text.split(",")) {
            found.add(new TopicPartition(each.split("/")[0], Integer.parseInt(each.split("/")[1])));
        }
        return found;
    }
}
