import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.StringJoiner;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.ConsumerGroupHeartbeatRequestData.TopicPartitions;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberState;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;
import org.apache.kafka.coordinator.group.modern.consumer.ConsumerGroupMember;
import org.apache.kafka.coordinator.group.modern.consumer.CurrentAssignmentBuilder;

/**
 * Answers each line of the input with one line. Topics are numbers from 1 on. Partitions are written "1:0,1:4,2:0", and
 * "-" is an empty list or null. Input:
 * <pre>
 * assign range|uniform TOPIC=COUNT,... MEMBER/INSTANCE/TOPICS/CURRENT ...     answer: MEMBER/PARTITIONS ...
 * reconcile STATE EPOCH ASSIGNED REVOKING TARGET_EPOCH TARGET OWNED TAKEN     answer: STATE EPOCH ASSIGNED REVOKING
 * </pre>
 * OWNED is "none" if the member does not report it; TAKEN are partitions of other members.
 */
public class GroupAssignments {
    public static void main(String[] arguments) throws Exception {
        var input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            System.out.println(words[0].equals("assign") ? assign(words) : reconcile(words));
        }
    }

    private static String assign(String[] words) {
        ConsumerGroupPartitionAssignor assignor = words[1].equals("range") ? new RangeAssignor() : new UniformAssignor();
        Map<Uuid, Integer> counts = new HashMap<>();
        for (String each : parts(words[2])) {
            counts.put(topic(each.split("=")[0]), Integer.parseInt(each.split("=")[1]));
        }
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new HashMap<>();
        Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
        Set<Set<Uuid>> subscriptions = new HashSet<>();
        for (int i = 3; i < words.length; i++) {
            String[] fields = words[i].split("/");
            Set<Uuid> topics = new HashSet<>();
            parts(fields[2]).forEach(each -> topics.add(topic(each)));
            subscriptions.add(topics);
            var current = partitions(fields[3]);
            current.forEach((topicId, numbers) -> numbers.forEach(
                    number -> owners.computeIfAbsent(topicId, __ -> new HashMap<>()).put(number, fields[0])));
            members.put(fields[0], new MemberSubscriptionAndAssignmentImpl(Optional.empty(),
                    fields[1].equals("-") ? Optional.empty() : Optional.of(fields[1]), topics,
                    new Assignment(Collections.unmodifiableMap(current))));
        }
        var type = subscriptions.size() == 1 ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
        var result = assignor.assign(new GroupSpecImpl(members, type, owners), new SubscribedTopicDescriber() {
            @Override
            public int numPartitions(Uuid topicId) {
                return counts.getOrDefault(topicId, -1);
            }

            @Override
            public Set<String> racksForPartition(Uuid topicId, int partition) {
                return Set.of();
            }
        });
        var answer = new StringJoiner(" ");
        result.members().forEach((id, assignment) -> answer.add(id + "/" + text(assignment.partitions())));
        return answer.toString();
    }

    private static String reconcile(String[] words) {
        var member = new ConsumerGroupMember.Builder("m")
                .setState(MemberState.fromValue(Byte.parseByte(words[1])))
                .setMemberEpoch(Integer.parseInt(words[2]))
                .setAssignedPartitions(partitions(words[3]))
                .setPartitionsPendingRevocation(partitions(words[4]))
                .build();
        var taken = partitions(words[8]);
        List<TopicPartitions> owned = null;
        if (!words[7].equals("none")) {
            owned = new ArrayList<>();
            for (var each : partitions(words[7]).entrySet()) {
                owned.add(new TopicPartitions()
                        .setTopicId(each.getKey()).setPartitions(new ArrayList<>(each.getValue())));
            }
        }
        var next = new CurrentAssignmentBuilder(member)
                .withTargetAssignment(Integer.parseInt(words[5]), new Assignment(partitions(words[6])))
                .withCurrentPartitionEpoch((topicId, number) ->
                        taken.getOrDefault(topicId, Set.of()).contains(number) ? 1 : -1)
                .withOwnedTopicPartitions(owned)
                .build();
        return next.state().value() + " " + next.memberEpoch() + " " + text(next.assignedPartitions())
                + " " + text(next.partitionsPendingRevocation());
    }

    private static List<String> parts(String text) {
        return text.equals("-") ? List.of() : List.of(text.split(","));
    }

    private static Uuid topic(String number) {
        return new Uuid(0, Long.parseLong(number));
    }

    private static Map<Uuid, Set<Integer>> partitions(String text) {
        Map<Uuid, Set<Integer>> found = new HashMap<>();
        for (String each : parts(text)) {
            String[] pair = each.split(":");
            found.computeIfAbsent(topic(pair[0]), __ -> new HashSet<>()).add(Integer.parseInt(pair[1]));
        }
        return found;
    }

    private static String text(Map<Uuid, Set<Integer>> partitions) {
        Map<Long, Set<Integer>> sorted = new TreeMap<>();
        partitions.forEach((topicId, numbers) -> sorted.put(topicId.getLeastSignificantBits(), new TreeSet<>(numbers)));
        var text = new StringJoiner(",").setEmptyValue("-");
        sorted.forEach((topic, numbers) -> numbers.forEach(number -> text.add(topic + ":" + number)));
        return text.toString();
    }
}
