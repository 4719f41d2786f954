import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.util.HexFormat;

/**
 * Reads lines with the key and the value of a record as hexadecimal digits, decodes and encodes each with the class
 * whose name is the argument, and prints them in the same format. "-" is no value.
 */
public class GroupRecords {
    public static void main(String[] arguments) throws Exception {
        Object serde = Class.forName(arguments[0]).getConstructor().newInstance();
        Method decode = serde.getClass().getMethod("deserialize", ByteBuffer.class, ByteBuffer.class);
        Method encodeKey = serde.getClass().getMethod("serializeKey", Object.class);
        Method encodeValue = serde.getClass().getMethod("serializeValue", Object.class);
        var input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            Object record = decode.invoke(serde, bytes(words[0]), bytes(words[1]));
            System.out.println(text((byte[]) encodeKey.invoke(serde, record))
                    + " " + text((byte[]) encodeValue.invoke(serde, record)));
        }
    }

    private static ByteBuffer bytes(String text) {
        return text.equals("-") ? null : ByteBuffer.wrap(HexFormat.of().parseHex(text));
    }

    private static String text(byte[] bytes) {
        return bytes == null ? "-" : HexFormat.of().formatHex(bytes);
    }
}
