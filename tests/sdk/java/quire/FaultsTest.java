package quire;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static quire.Server.item;
import static quire.Server.key;
import static quire.Server.refused;

import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.models.CosmosBulkOperations;
import com.azure.cosmos.models.CosmosItemOperation;
import com.azure.cosmos.models.CosmosQueryRequestOptions;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** The client tries again what the server refuses by rule, and does nothing twice. */
class FaultsTest {
    private final CosmosContainer items = Server.container();

    @AfterEach
    void withoutFaults() throws Exception {
        Server.admin("DELETE", "_quire/faults", "");
    }

    /** The rule's number; it holds for this test's container. */
    private int rule(String rule) throws Exception {
        ObjectNode sent = Server.json(rule).put("container", items.getId()).put("database", Server.database().getId());
        return Server.admin("POST", "_quire/faults", sent.toString()).get("id").asInt();
    }

    private static int fired(int id) throws Exception {
        for (var rule : Server.admin("GET", "_quire/faults", "").get("faults")) {
            if (rule.get("id").asInt() == id) {
                return rule.get("fired").asInt();
            }
        }
        throw new AssertionError("no rule " + id);
    }

    @Test
    void throttledWritesAreTriedAgain() throws Exception {
        int rule = rule("{'operations': ['create'], 'count': 3, 'status': 429, 'subStatus': 3200, 'retryAfterMs': 20}");
        assertEquals(201, items.createItem(item("1", "ada")).getStatusCode());
        assertEquals(3, fired(rule));
    }

    @Test
    void throttledForTooLong() throws Exception {
        int rule = rule("{'operations': ['read'], 'resourceType': 'docs', 'status': 429, 'subStatus': 3200, 'retryAfterMs': 5}");
        items.createItem(item("1", "ada"));
        refused(429, () -> items.readItem("1", key("ada"), ObjectNode.class));
        assertEquals(10, fired(rule), "nine tries after the first");
    }

    @Test
    void bulkWritesAreTriedAgain() throws Exception {
        int rule = rule("{'operations': ['batch'], 'count': 2, 'status': 429, 'subStatus': 3200, 'retryAfterMs': 20}");
        List<CosmosItemOperation> creates = new ArrayList<>();
        for (int number = 0; number < 60; number++) {
            creates.add(CosmosBulkOperations.getCreateItemOperation(item("" + number, "p" + number % 7), key("p" + number % 7)));
        }
        for (var done : items.executeBulkOperations(creates)) {
            assertEquals(201, done.getResponse().getStatusCode());
        }
        assertEquals(2, fired(rule));
    }

    @Test
    void connectionsThatAreCut() throws Exception {
        items.createItem(item("1", "ada"));
        int rule = rule("{'operations': ['read'], 'resourceType': 'docs', 'count': 2, 'cut': true}");
        assertEquals("1", items.readItem("1", key("ada"), ObjectNode.class).getItem().get("id").asText());
        assertEquals(2, fired(rule));
    }

    /** A page that meets a partition which is gone is asked for again with the new layout. */
    @Test
    void aPartitionThatIsGone() throws Exception {
        List<Integer> all = IntStream.range(0, 20).boxed().toList();
        for (int number : all) {
            items.createItem(item("" + number, "p" + number).put("n", number));
        }
        int rule = rule("{'operations': ['query'], 'count': 1, 'status': 410, 'subStatus': 1002}");
        assertEquals(all, Server.rows(items, "SELECT VALUE c.n FROM c ORDER BY c.n", new CosmosQueryRequestOptions(), Integer.class));
        assertEquals(1, fired(rule));
    }

    @Test
    void aSessionThatIsBehind() throws Exception {
        items.createItem(item("1", "ada"));
        int rule = rule("{'operations': ['read'], 'resourceType': 'docs', 'count': 1, 'status': 404, 'subStatus': 1002}");
        assertEquals("1", items.readItem("1", key("ada"), ObjectNode.class).getItem().get("id").asText());
        assertEquals(1, fired(rule));
    }

    @Test
    void writersThatMeet() throws Exception {
        int rule = rule("{'operations': ['create'], 'count': 1, 'status': 449}");
        assertEquals(201, items.createItem(item("1", "ada")).getStatusCode());
        assertTrue(fired(rule) == 1);
    }
}
