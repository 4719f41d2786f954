// Makes the vectors of this folder with Apache Kafka's own classes:
//     java -cp "kafka_2.13-3.9.1/libs/*" MakeVectors.java OUTPUT_FOLDER

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
import org.apache.kafka.common.record.ControlRecordType;
import org.apache.kafka.common.record.EndTransactionMarker;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.SimpleRecord;
import org.apache.kafka.common.record.TimestampType;

public class MakeVectors {
    static final byte MAGIC = RecordBatch.MAGIC_VALUE_V2;

    public static void main(String[] arguments) throws Exception {
        Path folder = Path.of(arguments[0]);
        SimpleRecord[] few = records(100);
        SimpleRecord[] many = records(9000);
        write(folder, "none", MemoryRecords.withRecords(Compression.NONE, few));
        write(folder, "gzip", MemoryRecords.withRecords(Compression.gzip().build(), many));
        write(folder, "snappy", MemoryRecords.withRecords(Compression.snappy().build(), many));
        write(folder, "lz4", MemoryRecords.withRecords(Compression.lz4().build(), many));
        write(folder, "lz4_level_12", MemoryRecords.withRecords(Compression.lz4().level(12).build(), many));
        write(folder, "zstd", MemoryRecords.withRecords(Compression.zstd().build(), many));
        write(folder, "idempotent",
            MemoryRecords.withIdempotentRecords(MAGIC, 42L, Compression.NONE, 7777L, (short) 3, 99, 5, few));
        write(folder, "transactional",
            MemoryRecords.withTransactionalRecords(Compression.lz4().build(), 7777L, (short) 3, 0, few));
        for (ControlRecordType type : List.of(ControlRecordType.COMMIT, ControlRecordType.ABORT)) {
            write(folder, "marker_" + type.name().toLowerCase(), MemoryRecords.withEndTransactionMarker(
                17L, 1700000000000L, 5, 7777L, (short) 3, new EndTransactionMarker(type, 11)));
        }
        MemoryRecordsBuilder builder = MemoryRecords.builder(ByteBuffer.allocate(300000), MAGIC,
            Compression.gzip().build(), TimestampType.LOG_APPEND_TIME, 100L, 1700000077777L);
        for (SimpleRecord record : few) {
            builder.append(record);
        }
        write(folder, "log_append_time", builder.build());
    }

    static SimpleRecord[] records(int repeats) {
        StringBuilder big = new StringBuilder();
        for (int i = 0; i < repeats; i++) {
            big.append("departure ").append(i % 97).append(';');
        }
        Header[] traced = {new RecordHeader("trace", bytes("abc")), new RecordHeader("none", (byte[]) null)};
        Header[] odd = {new RecordHeader("größe", bytes(""))};
        return new SimpleRecord[] {
            new SimpleRecord(1700000000123L, bytes("UA"), bytes("{\"delay\": 4}"), traced),
            new SimpleRecord(1700000000100L, (byte[]) null, bytes("early"), new Header[0]),
            new SimpleRecord(1700000009999L, bytes(""), (byte[]) null, new Header[0]),
            new SimpleRecord(1700000009999L, bytes("big"), bytes(big.toString()), odd)};
    }

    static void write(Path folder, String action, MemoryRecords records) throws Exception {
        List<String> rows = new ArrayList<>();
        for (RecordBatch batch : records.batches()) {
            for (Record record : batch) {
                rows.add(row(batch, record));
            }
        }
        byte[] raw = new byte[records.sizeInBytes()];
        records.buffer().duplicate().get(raw);
        Files.writeString(folder.resolve("java_3_9_1_" + action + ".json"), String.format(
            "{%n  \"client\": \"org.apache.kafka:kafka-clients 3.9.1\",%n  \"action\": \"%s\",%n  \"records\": [%n    %s%n  ],%n"
                + "  \"bytes\": \"%s\"%n}%n", action, String.join(",\n    ", rows), HexFormat.of().formatHex(raw)));
    }

    static String row(RecordBatch batch, Record record) throws Exception {
        List<String> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            headers.add("[\"" + header.key() + "\", " + hex(header.value()) + "]");
        }
        byte[] value = content(record.value());
        String digest = hex(value == null ? null : MessageDigest.getInstance("SHA-256").digest(value));
        return String.format("{\"offset\": %d, \"timestamp\": %d, \"timestamp_type\": %d, \"key\": %s, \"value_sha256\": %s, \"headers\": %s}",
            record.offset(), record.timestamp(), batch.timestampType().id, hex(content(record.key())), digest, headers);
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
