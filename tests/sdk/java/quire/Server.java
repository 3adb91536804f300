package quire;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.azure.cosmos.CosmosAsyncClient;
import com.azure.cosmos.CosmosAsyncContainer;
import com.azure.cosmos.CosmosClient;
import com.azure.cosmos.CosmosClientBuilder;
import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.CosmosDatabase;
import com.azure.cosmos.CosmosException;
import com.azure.cosmos.models.CosmosContainerProperties;
import com.azure.cosmos.models.CosmosQueryRequestOptions;
import com.azure.cosmos.models.PartitionKey;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.ZoneOffset;
import java.time.ZonedDateTime;
import java.time.format.DateTimeFormatter;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Locale;
import java.util.UUID;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;
import org.junit.jupiter.api.function.Executable;

/**
 * The live server, named by QUIRE_ENDPOINT and QUIRE_PARTITIONS, and what most tests need of it. The authority of an https endpoint
 * is in the trust store that the JVM is started with.
 */
final class Server {
    /** The public key of the emulators. */
    static final String KEY = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";
    static final String ENDPOINT = variable("QUIRE_ENDPOINT");
    static final int PARTITIONS = Integer.parseInt(variable("QUIRE_PARTITIONS"));
    static final ObjectMapper JSON = new ObjectMapper();

    /** Writes answer with the item: the change feed processor asks for that. */
    private static final CosmosAsyncClient ASYNC_CLIENT = builder().contentResponseOnWriteEnabled(true).buildAsyncClient();
    private static final CosmosClient CLIENT = builder().buildClient();
    private static final String DATABASE = name("java");

    static {
        CLIENT.createDatabase(DATABASE);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> CLIENT.getDatabase(DATABASE).delete()));
    }

    private Server() {}

    private static String variable(String name) {
        String value = System.getenv(name);
        if (value == null) {
            throw new IllegalStateException(name + " says which server to test");
        }
        return value;
    }

    static CosmosClientBuilder builder() {
        return builderWithoutKey().key(KEY);
    }

    static CosmosClientBuilder builderWithoutKey() {
        return new CosmosClientBuilder().endpoint(ENDPOINT).gatewayMode();
    }

    static CosmosClient client() {
        return CLIENT;
    }

    static CosmosAsyncClient asyncClient() {
        return ASYNC_CLIENT;
    }

    /** All containers of a run are in one database. */
    static CosmosDatabase database() {
        return CLIENT.getDatabase(DATABASE);
    }

    static CosmosContainer container() {
        return container(new CosmosContainerProperties(name("c"), "/pk"));
    }

    static CosmosContainer container(CosmosContainerProperties properties) {
        database().createContainer(properties);
        return database().getContainer(properties.getId());
    }

    static CosmosAsyncContainer async(CosmosContainer container) {
        return ASYNC_CLIENT.getDatabase(DATABASE).getContainer(container.getId());
    }

    static String name(String prefix) {
        return prefix + "-" + UUID.randomUUID();
    }

    static PartitionKey key(String value) {
        return new PartitionKey(value);
    }

    /** JSON with single quotes. */
    static ObjectNode json(String text) {
        try {
            return (ObjectNode) JSON.readTree(text.replace('\'', '"'));
        } catch (Exception error) {
            throw new IllegalArgumentException(text, error);
        }
    }

    static ObjectNode item(String id, String partition) {
        return JSON.createObjectNode().put("id", id).put("pk", partition);
    }

    /** The error of the server, which must have this status. */
    static CosmosException refused(int status, Executable call) {
        CosmosException error = assertThrows(CosmosException.class, call);
        assertEquals(status, error.getStatusCode(), error::getMessage);
        return error;
    }

    static CosmosQueryRequestOptions of(String partition) {
        return new CosmosQueryRequestOptions().setPartitionKey(key(partition));
    }

    static <T> List<T> rows(CosmosContainer container, String sql, CosmosQueryRequestOptions options, Class<T> kind) {
        return container.queryItems(sql, options, kind).stream().toList();
    }

    /** The rows in pages of a size, each page asked for by the token of the one before. */
    static <T> List<T> rowsByToken(CosmosContainer container, String sql, int size, Class<T> kind) {
        List<T> found = new ArrayList<>();
        String token = null;
        do {
            var pages = container.queryItems(sql, new CosmosQueryRequestOptions(), kind).iterableByPage(token, size);
            var page = pages.iterator().next();
            found.addAll(page.getResults());
            token = page.getContinuationToken();
        } while (token != null);
        return found;
    }

    /** A request below /_quire/, signed with its path as link. */
    static JsonNode admin(String method, String path, String body) throws Exception {
        String date = DateTimeFormatter.RFC_1123_DATE_TIME.format(ZonedDateTime.now(ZoneOffset.UTC));
        String text = method.toLowerCase(Locale.ROOT) + "\n_quire\n" + path + "\n" + date.toLowerCase(Locale.ROOT) + "\n\n";
        Mac mac = Mac.getInstance("HmacSHA256");
        mac.init(new SecretKeySpec(Base64.getDecoder().decode(KEY), "HmacSHA256"));
        String signature = Base64.getEncoder().encodeToString(mac.doFinal(text.getBytes(StandardCharsets.UTF_8)));
        String token = URLEncoder.encode("type=master&ver=1.0&sig=" + signature, StandardCharsets.UTF_8);
        HttpRequest request = HttpRequest.newBuilder(URI.create(ENDPOINT + path))
            .method(method, HttpRequest.BodyPublishers.ofString(body))
            .header("authorization", token).header("x-ms-date", date).build();
        HttpResponse<String> answer = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
        assertEquals(2, answer.statusCode() / 100, answer::body);
        return answer.body().isEmpty() ? null : JSON.readTree(answer.body());
    }
}
