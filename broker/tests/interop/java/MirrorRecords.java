package org.apache.kafka.connect.mirror;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HexFormat;
import java.util.OptionalLong;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;

/**
 * Writes records of MirrorMaker 2 and translates offsets, one request a line:
 * "sync TOPIC PARTITION UPSTREAM DOWNSTREAM", "checkpoint GROUP TOPIC PARTITION UPSTREAM DOWNSTREAM METADATA" and
 * "heartbeat SOURCE TARGET TIMESTAMP" print key and value as hexadecimal digits. "decode KEY VALUE" prints the
 * checkpoint in a record. "store UPSTREAM DOWNSTREAM" adds a sync of the partition t-0, and "translate OFFSET" prints
 * where a group continues, or "none". "default NAME" prints the default of a list of properties that are not followed.
 */
public class MirrorRecords {
    private static final TopicPartition PARTITION = new TopicPartition("t", 0);

    private static class Store extends OffsetSyncStore {
        Store() {
            readToEnd = true;
        }

        void add(OffsetSync sync) {
            handleRecord(new ConsumerRecord<>("syncs", 0, 0, sync.recordKey(), sync.recordValue()));
        }
    }

    public static void main(String[] arguments) throws Exception {
        var input = new BufferedReader(new InputStreamReader(System.in));
        Store store = new Store();
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "sync" -> {
                    var sync = new OffsetSync(partition(words[1], words[2]), number(words[3]), number(words[4]));
                    print(sync.recordKey(), sync.recordValue());
                }
                case "checkpoint" -> {
                    var checkpoint = new Checkpoint(words[1], partition(words[2], words[3]), number(words[4]),
                            number(words[5]), words[6]);
                    print(checkpoint.recordKey(), checkpoint.recordValue());
                }
                case "heartbeat" -> {
                    var heartbeat = new Heartbeat(words[1], words[2], number(words[3]));
                    print(heartbeat.recordKey(), heartbeat.recordValue());
                }
                case "decode" -> System.out.println(Checkpoint.deserializeRecord(
                        new ConsumerRecord<>("checkpoints", 0, 0, bytes(words[1]), bytes(words[2]))));
                case "store" -> store.add(new OffsetSync(PARTITION, number(words[1]), number(words[2])));
                case "translate" -> {
                    OptionalLong found = store.translateDownstream("g", PARTITION, number(words[1]));
                    System.out.println(found.isPresent() ? found.getAsLong() : "none");
                }
                case "default" -> System.out.println(DefaultConfigPropertyFilter.CONFIG_PROPERTIES_EXCLUDE_DEFAULT);
                default -> throw new IllegalArgumentException(line);
            }
        }
    }

    private static TopicPartition partition(String topic, String number) {
        return new TopicPartition(topic, Integer.parseInt(number));
    }

    private static long number(String text) {
        return Long.parseLong(text);
    }

    private static byte[] bytes(String text) {
        return HexFormat.of().parseHex(text);
    }

    private static void print(byte[] key, byte[] value) {
        System.out.println(HexFormat.of().formatHex(key) + " " + HexFormat.of().formatHex(value));
    }
}
