import org.apache.kafka.clients.consumer.ConsumerRecord;

/** Timestamps came with 0.10; before, there is nothing to tell. */
final class Times {
    private Times() {
    }

    static long of(ConsumerRecord<byte[], byte[]> record) throws Exception {
        try {
            return (Long) ConsumerRecord.class.getMethod("timestamp").invoke(record);
        } catch (NoSuchMethodException before) {
            return -1;
        }
    }
}
