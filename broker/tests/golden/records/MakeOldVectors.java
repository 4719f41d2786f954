// Makes the vectors of formats 0 and 1 in this folder with Apache Kafka's own classes:
//     java -cp "kafka_2.13-3.9.1/libs/*" MakeOldVectors.java OUTPUT_FOLDER

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.ControlRecordType;
import org.apache.kafka.common.record.EndTransactionMarker;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.SimpleRecord;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.utils.Time;

public class MakeOldVectors {
    static final long APPEND_TIME = 1700000077777L;
    static final CompressionType[] CODECS = {
        CompressionType.NONE, CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4};

    public static void main(String[] arguments) throws Exception {
        Path folder = Path.of(arguments[0]);
        for (CompressionType codec : CODECS) {
            for (byte magic = 0; magic <= 1; magic++) {
                write(folder, "v" + magic + "_" + codec.name, null, set(magic, codec, TimestampType.CREATE_TIME, 42L, records(60)));
            }
            write(folder, "v1_append_time_" + codec.name, null,
                set((byte) 1, codec, TimestampType.LOG_APPEND_TIME, 42L, records(60)));
            MemoryRecords source = set((byte) 2, codec, TimestampType.CREATE_TIME, 42L, records(60));
            down(folder, codec.name, source);
            down(folder, "append_time_" + codec.name, set((byte) 2, codec, TimestampType.LOG_APPEND_TIME, 42L, records(60)));
            down(folder, "from_v1_" + codec.name, set((byte) 1, codec, TimestampType.CREATE_TIME, 42L, records(60)));
        }
        ByteBuffer transaction = ByteBuffer.allocate(10000);
        transaction.put(MemoryRecords.withTransactionalRecords(42L, Compression.NONE, 7777L, (short) 3, 0, 5, records(3)).buffer());
        transaction.put(MemoryRecords.withEndTransactionMarker(
            46L, 1700000000000L, 5, 7777L, (short) 3, new EndTransactionMarker(ControlRecordType.COMMIT, 11)).buffer());
        transaction.put(set((byte) 2, CompressionType.GZIP, TimestampType.CREATE_TIME, 47L, records(3)).buffer());
        transaction.flip();
        down(folder, "transaction", MemoryRecords.readableRecords(transaction));
    }

    static MemoryRecords set(byte magic, CompressionType codec, TimestampType type, long baseOffset, SimpleRecord[] records) {
        MemoryRecordsBuilder builder = MemoryRecords.builder(
            ByteBuffer.allocate(300000), magic, Compression.of(codec).build(), type, baseOffset, APPEND_TIME);
        for (SimpleRecord record : records) {
            if (magic == 2) {
                builder.append(record);
            } else {
                builder.append(magic == 0 ? RecordBatch.NO_TIMESTAMP : record.timestamp(), record.key(), record.value());
            }
        }
        return builder.build();
    }

    static void down(Path folder, String name, MemoryRecords source) throws Exception {
        for (byte magic = 0; magic <= 1; magic++) {
            // The second wanted offset, so that plain batches lose their first record.
            write(folder, "down_" + magic + "_" + name, source, source.downConvert(magic, 43L, Time.SYSTEM).records());
        }
    }

    static SimpleRecord[] records(int repeats) {
        StringBuilder big = new StringBuilder();
        for (int i = 0; i < repeats; i++) {
            big.append("departure ").append(i % 97).append(';');
        }
        Header[] traced = {new RecordHeader("trace", bytes("abc")), new RecordHeader("none", (byte[]) null)};
        return new SimpleRecord[] {
            new SimpleRecord(1700000000123L, bytes("UA"), bytes("{\"delay\": 4}"), traced),
            new SimpleRecord(1700000000100L, (byte[]) null, bytes("early"), new Header[0]),
            new SimpleRecord(1700000009999L, bytes(""), (byte[]) null, new Header[0]),
            new SimpleRecord(1700000009000L, bytes("big"), bytes(big.toString()), new Header[0])};
    }

    static void write(Path folder, String action, MemoryRecords source, MemoryRecords records) throws Exception {
        List<String> rows = new ArrayList<>();
        for (RecordBatch batch : records.batches()) {
            for (Record record : batch) {
                rows.add(row(batch, record));
            }
        }
        String from = source == null ? "" : String.format("  \"source\": \"%s\",%n", raw(source));
        Files.writeString(folder.resolve("old_java_3_9_1_" + action + ".json"), String.format(
            "{%n  \"client\": \"org.apache.kafka:kafka-clients 3.9.1\",%n  \"action\": \"%s\",%n  \"records\": [%n    %s%n  ],%n"
                + "%s  \"bytes\": \"%s\"%n}%n", action, String.join(",\n    ", rows), from, raw(records)));
    }

    static String raw(MemoryRecords records) {
        byte[] raw = new byte[records.sizeInBytes()];
        records.buffer().duplicate().get(raw);
        return HexFormat.of().formatHex(raw);
    }

    static String row(RecordBatch batch, Record record) throws Exception {
        byte[] value = content(record.value());
        String digest = hex(value == null ? null : MessageDigest.getInstance("SHA-256").digest(value));
        return String.format("{\"offset\": %d, \"timestamp\": %d, \"timestamp_type\": %d, \"key\": %s, \"value_sha256\": %s}",
            record.offset(), record.timestamp(), batch.timestampType().id, hex(content(record.key())), digest);
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static byte[] content(ByteBuffer buffer) {
        if (buffer == null) {
            return null;
        }
        byte[] content = new byte[buffer.remaining()];
        buffer.duplicate().get(content);
        return content;
    }

    static String hex(byte[] content) {
        return content == null ? "null" : "\"" + HexFormat.of().formatHex(content) + "\"";
    }
}
