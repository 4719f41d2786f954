import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import javax.security.auth.callback.Callback;
import javax.security.auth.callback.NameCallback;
import javax.security.auth.callback.PasswordCallback;
import javax.security.auth.login.AppConfigurationEntry;
import javax.security.sasl.Sasl;
import javax.security.sasl.SaslClient;
import javax.security.sasl.SaslServer;
import org.apache.kafka.common.config.SaslConfigs;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.security.JaasContext;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.auth.SaslExtensions;
import org.apache.kafka.common.security.auth.SaslExtensionsCallback;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerToken;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerTokenCallback;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler;
import org.apache.kafka.common.security.oauthbearer.internals.OAuthBearerSaslClient;
import org.apache.kafka.common.security.oauthbearer.internals.OAuthBearerSaslServer;
import org.apache.kafka.common.security.plain.internals.PlainSaslServer;
import org.apache.kafka.common.security.plain.internals.PlainServerCallbackHandler;
import org.apache.kafka.common.security.scram.ScramCredential;
import org.apache.kafka.common.security.scram.ScramCredentialCallback;
import org.apache.kafka.common.security.scram.ScramExtensionsCallback;
import org.apache.kafka.common.security.scram.internals.ScramCredentialUtils;
import org.apache.kafka.common.security.scram.internals.ScramFormatter;
import org.apache.kafka.common.security.scram.internals.ScramMechanism;
import org.apache.kafka.common.security.scram.internals.ScramSaslClient;
import org.apache.kafka.common.security.scram.internals.ScramSaslServer;
import org.apache.kafka.common.security.token.delegation.internals.DelegationTokenCredentialCallback;

/**
 * Runs one side of SASL exchanges with Kafka's classes. Each line of the input is a command and its arguments, in
 * base64; each line of the output is "ok" with results in base64, or "error" with the class and the message.
 */
public class SaslSide {
    private static final String LIFETIME = "CREDENTIAL.LIFETIME.MS";
    private static final String PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule";
    private static final String BEARER_MODULE =
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule";

    private SaslServer server;
    private SaslClient client;

    /** A handler without configuration. */
    private interface Handler extends AuthenticateCallbackHandler {
        @Override
        default void configure(Map<String, ?> configs, String mechanism, List<AppConfigurationEntry> entries) {}

        @Override
        default void close() {}
    }

    public static void main(String[] arguments) throws Exception {
        SaslSide side = new SaslSide();
        var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ", -1);
            List<String> values = new ArrayList<>();
            for (int i = 1; i < words.length; i++) values.add(decoded(words[i]));
            try {
                System.out.println("ok" + side.run(words[0], values));
            } catch (Exception error) {
                String text = error.getClass().getSimpleName() + ": " + error.getMessage();
                System.out.println("error " + encoded(text.getBytes(StandardCharsets.UTF_8)));
            }
        }
    }

    private String run(String command, List<String> values) throws Exception {
        switch (command) {
            case "plain-server":
                return plainServer(values.get(0));
            case "plain-client":
                server = null;
                client = plainClient(values.get(0), values.get(1));
                return answer(client.evaluateChallenge(new byte[0]));
            case "scram-server":
                return scramServer(values);
            case "scram-client":
                return scramClient(values);
            case "bearer-server":
                return bearerServer(values);
            case "bearer-client":
                return bearerClient(values.get(0), values.get(1));
            case "step":
                return step(values.get(0).getBytes(StandardCharsets.ISO_8859_1));
            case "jaas":
                return jaas(values.get(0));
            case "credential":
                var mechanism = ScramMechanism.forMechanismName(values.get(0));
                var made = new ScramFormatter(mechanism).generateCredential(
                        utf8(values.get(1)), Integer.parseInt(values.get(2)));
                return answer(ScramCredentialUtils.credentialToString(made).getBytes(StandardCharsets.US_ASCII));
            default:
                throw new IllegalArgumentException(command);
        }
    }

    private String step(byte[] data) throws Exception {
        if (server == null) {
            byte[] response = client.evaluateChallenge(data);
            return answer(response == null ? new byte[0] : response, client.isComplete(), "", null);
        }
        byte[] response = server.evaluateResponse(data);
        boolean isComplete = server.isComplete();
        return answer(response, isComplete, isComplete ? server.getAuthorizationID() : "",
                isComplete ? server.getNegotiatedProperty(LIFETIME) : null);
    }

    private String plainServer(String entry) {
        var handler = new PlainServerCallbackHandler();
        handler.configure(Map.of(), "PLAIN", context(utf8(entry)).configurationEntries());
        return serve(new PlainSaslServer(handler));
    }

    private static SaslClient plainClient(String user, String password) throws Exception {
        return createPlain(callbacks -> {
            for (Callback callback : callbacks) {
                if (callback instanceof NameCallback) ((NameCallback) callback).setName(utf8(user));
                else ((PasswordCallback) callback).setPassword(utf8(password).toCharArray());
            }
        });
    }

    private static SaslClient createPlain(Handler handler) throws Exception {
        return Sasl.createSaslClient(
                new String[] {"PLAIN"}, null, "kafka", "localhost", Map.of(), handler);
    }

    /** Mechanism, user or token, text of its credential, owner of the token or nothing, expiry of the token. */
    private String scramServer(List<String> values) throws Exception {
        String name = utf8(values.get(1));
        String owner = utf8(values.get(3));
        ScramCredential credential = ScramCredentialUtils.credentialFromString(values.get(2));
        Handler handler = callbacks -> {
            String asked = ((NameCallback) callbacks[0]).getDefaultName();
            if (!asked.equals(name)) return;
            if (callbacks[1] instanceof DelegationTokenCredentialCallback) {
                var callback = (DelegationTokenCredentialCallback) callbacks[1];
                if (owner.isEmpty()) return;
                callback.tokenOwner(owner);
                callback.tokenExpiryTimestamp(Long.parseLong(values.get(4)));
                callback.scramCredential(credential);
            } else if (owner.isEmpty()) {
                ((ScramCredentialCallback) callbacks[1]).scramCredential(credential);
            }
        };
        return serve(new ScramSaslServer(ScramMechanism.forMechanismName(values.get(0)), Map.of(), handler));
    }

    /** Mechanism, user, password, and "true" for a token. */
    private String scramClient(List<String> values) throws Exception {
        Handler handler = callbacks -> {
            for (Callback callback : callbacks) {
                if (callback instanceof NameCallback) ((NameCallback) callback).setName(utf8(values.get(1)));
                else if (callback instanceof PasswordCallback)
                    ((PasswordCallback) callback).setPassword(utf8(values.get(2)).toCharArray());
                else if (values.get(3).equals("true"))
                    ((ScramExtensionsCallback) callback).extensions(Map.of("tokenauth", "true"));
            }
        };
        server = null;
        client = new ScramSaslClient(ScramMechanism.forMechanismName(values.get(0)), handler);
        return answer(client.evaluateChallenge(new byte[0]));
    }

    /** Address of the key set, audience and issuer or nothing. */
    private String bearerServer(List<String> values) {
        System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", values.get(0));
        Map<String, Object> configs = new HashMap<>();
        configs.put(SaslConfigs.SASL_OAUTHBEARER_JWKS_ENDPOINT_URL, values.get(0));
        configs.put(SaslConfigs.SASL_OAUTHBEARER_CLOCK_SKEW_SECONDS, 30);
        configs.put(SaslConfigs.SASL_OAUTHBEARER_SCOPE_CLAIM_NAME, "scope");
        configs.put(SaslConfigs.SASL_OAUTHBEARER_SUB_CLAIM_NAME, "sub");
        // Kafka 4.1 needs it here. With DefaultJwtValidator, it would verify no signature.
        configs.put("sasl.oauthbearer.jwt.validator.class",
                "org.apache.kafka.common.security.oauthbearer.BrokerJwtValidator");
        if (!values.get(1).isEmpty())
            configs.put(SaslConfigs.SASL_OAUTHBEARER_EXPECTED_AUDIENCE, List.of(values.get(1).split(",")));
        if (!values.get(2).isEmpty()) configs.put(SaslConfigs.SASL_OAUTHBEARER_EXPECTED_ISSUER, values.get(2));
        var handler = new OAuthBearerValidatorCallbackHandler();
        handler.configure(configs, "OAUTHBEARER", context(BEARER_MODULE + " required;").configurationEntries());
        return serve(new OAuthBearerSaslServer(handler));
    }

    /** The token, and the value of the extension "trace" or nothing. */
    private String bearerClient(String token, String extension) throws Exception {
        Handler handler = callbacks -> {
            if (callbacks[0] instanceof OAuthBearerTokenCallback)
                ((OAuthBearerTokenCallback) callbacks[0]).token(new Bearer(token));
            else if (!extension.isEmpty())
                ((SaslExtensionsCallback) callbacks[0]).extensions(new SaslExtensions(Map.of("trace", extension)));
        };
        server = null;
        client = new OAuthBearerSaslClient(handler);
        return answer(client.evaluateChallenge(new byte[0]));
    }

    /** A token of which only the value is sent. */
    private record Bearer(String value) implements OAuthBearerToken {
        @Override
        public java.util.Set<String> scope() {
            return java.util.Set.of();
        }

        @Override
        public long lifetimeMs() {
            return Long.MAX_VALUE;
        }

        @Override
        public String principalName() {
            return "anyone";
        }

        @Override
        public Long startTimeMs() {
            return null;
        }
    }

    private static String jaas(String text) {
        var entry = context(utf8(text)).configurationEntries().get(0);
        StringBuilder result = new StringBuilder(" " + encoded(bytes(entry.getLoginModuleName())));
        for (var option : new TreeMap<>(entry.getOptions()).entrySet())
            result.append(" ").append(encoded(bytes(option.getKey() + "=" + option.getValue())));
        return result.toString();
    }

    private static JaasContext context(String text) {
        return JaasContext.loadClientContext(Map.of(SaslConfigs.SASL_JAAS_CONFIG, new Password(text)));
    }

    private String serve(SaslServer made) {
        server = made;
        return "";
    }

    private static String answer(byte[] data, boolean isComplete, String name, Object lifetime) {
        return answer(data) + " " + encoded(bytes(String.valueOf(isComplete))) + " " + encoded(bytes(name)) + " "
                + encoded(bytes(String.valueOf(lifetime)));
    }

    private static String answer(byte[] data) {
        return " " + encoded(data);
    }

    /** Arguments are bytes; those that are texts are in UTF-8. */
    private static String utf8(String latin) {
        return new String(latin.getBytes(StandardCharsets.ISO_8859_1), StandardCharsets.UTF_8);
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static String encoded(byte[] data) {
        return Base64.getEncoder().encodeToString(data);
    }

    private static String decoded(String text) {
        return new String(Base64.getDecoder().decode(text), StandardCharsets.ISO_8859_1);
    }
}
