import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import kafka.server.DynamicBrokerConfig;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.storage.internals.log.LogConfig;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Prints every setting of brokers and topics, one a line, with tabs between entity, name, type, update mode,
 * visibility and default. A default is written after an equals sign; null is written without one.
 */
public class Settings {
    public static void main(String[] arguments) throws ReflectiveOperationException {
        Set<String> dynamic = CollectionConverters.asJava(DynamicBrokerConfig.AllDynamicConfigs());
        show("broker", KafkaConfig.configDef().configKeys(), dynamic, perBroker());
        show("topic", LogConfig.configDefCopy().configKeys(), Set.of(), Set.of());
    }

    /** The settings that cannot be changed as the default of all brokers; Kafka keeps the set to itself. */
    @SuppressWarnings("unchecked")
    private static Set<String> perBroker() throws ReflectiveOperationException {
        var method = kafka.server.DynamicBrokerConfig$.class.getDeclaredMethod("PerBrokerConfigs");
        method.setAccessible(true);
        return CollectionConverters.asJava(
                (scala.collection.Set<String>) method.invoke(kafka.server.DynamicBrokerConfig$.MODULE$));
    }

    private static void show(
            String entity, Map<String, ConfigDef.ConfigKey> keys, Set<String> dynamic, Set<String> perBroker) {
        for (var key : new TreeMap<>(keys).values()) {
            boolean isDynamic = dynamic.contains(key.name);
            String update = perBroker.contains(key.name) ? "per-broker" : isDynamic ? "cluster-wide" : "read-only";
            boolean isNull = key.defaultValue == null || ConfigDef.NO_DEFAULT_VALUE.equals(key.defaultValue);
            String value = isNull ? "null" : "=" + ConfigDef.convertToString(key.defaultValue, key.type);
            String visibility = key.internalConfig ? "internal" : "public";
            System.out.println(String.join("\t", entity, key.name, key.type.name(), update, visibility, value));
        }
    }
}
