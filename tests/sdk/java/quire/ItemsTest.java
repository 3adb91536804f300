package quire;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static quire.Server.container;
import static quire.Server.item;
import static quire.Server.json;
import static quire.Server.key;
import static quire.Server.refused;

import com.azure.cosmos.CosmosAsyncContainer;
import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.models.CosmosBatch;
import com.azure.cosmos.models.CosmosBatchResponse;
import com.azure.cosmos.models.CosmosBulkOperationResponse;
import com.azure.cosmos.models.CosmosBulkOperations;
import com.azure.cosmos.models.CosmosContainerProperties;
import com.azure.cosmos.models.CosmosItemIdentity;
import com.azure.cosmos.models.CosmosItemOperation;
import com.azure.cosmos.models.CosmosItemRequestOptions;
import com.azure.cosmos.models.CosmosItemResponse;
import com.azure.cosmos.models.CosmosPatchItemRequestOptions;
import com.azure.cosmos.models.CosmosPatchOperations;
import com.azure.cosmos.models.CosmosQueryRequestOptions;
import com.azure.cosmos.models.PartitionKey;
import com.azure.cosmos.models.PartitionKeyBuilder;
import com.azure.cosmos.models.PartitionKeyDefinition;
import com.azure.cosmos.models.PartitionKeyDefinitionVersion;
import com.azure.cosmos.models.PartitionKind;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;
import reactor.core.publisher.Flux;

class ItemsTest {
    @Test
    void itemsLiveAndDie() {
        CosmosContainer items = container();
        ObjectNode item = json("{'id': '1', 'pk': 'ada', 'text': 'Ünï \\t\\n', 'large': 9007199254740993, 'list': [1.5, null, true, {'a': 'b'}]}");
        var written = new CosmosItemRequestOptions().setContentResponseOnWriteEnabled(true);
        CosmosItemResponse<ObjectNode> created = items.createItem(item, written);
        assertEquals(201, created.getStatusCode());
        assertTrue(created.getRequestCharge() > 0 && created.getSessionToken() != null);
        ObjectNode stored = created.getItem();
        assertEquals(item, stored.deepCopy().retain("id", "pk", "text", "large", "list"));
        assertEquals(created.getETag(), stored.get("_etag").asText());
        refused(409, () -> items.createItem(item));

        String first = created.getETag();
        item.put("age", 36);
        var unchanged = new CosmosItemRequestOptions().setIfMatchETag(first);
        assertNotEquals(first, items.replaceItem(item, "1", key("ada"), unchanged).getETag());
        refused(412, () -> items.replaceItem(item, "1", key("ada"), unchanged));
        refused(404, () -> items.replaceItem(item("none", "ada"), "none", key("ada"), null));

        CosmosItemResponse<ObjectNode> upserted = items.upsertItem(item.put("age", 37));
        assertEquals(200, upserted.getStatusCode());
        var session = new CosmosItemRequestOptions().setSessionToken(upserted.getSessionToken());
        assertEquals(37, items.readItem("1", key("ada"), session, ObjectNode.class).getItem().get("age").asInt());
        var known = new CosmosItemRequestOptions().setIfNoneMatchETag(upserted.getETag());
        assertEquals(304, items.readItem("1", key("ada"), known, ObjectNode.class).getStatusCode());
        refused(404, () -> items.readItem("1", key("bob"), ObjectNode.class));
        assertEquals(204, items.deleteItem("1", key("ada"), null).getStatusCode());
        refused(404, () -> items.deleteItem("1", key("ada"), null));
    }

    @Test
    void itemsLiveAndDieAsynchronously() {
        CosmosAsyncContainer items = Server.async(container());
        var age = Flux.range(0, 50)
            .flatMap(number -> items.createItem(item("" + number, "p" + number % 7).put("n", number)), 10)
            .map(CosmosItemResponse::getStatusCode)
            .distinct()
            .collectList()
            .doOnNext(statuses -> assertEquals(List.of(201), statuses))
            .then(items.readItem("9", key("p2"), ObjectNode.class))
            .flatMap(read -> items.replaceItem(read.getItem().put("n", 90), "9", key("p2")))
            .then(items.readItem("9", key("p2"), ObjectNode.class))
            .map(read -> read.getItem().get("n").asInt())
            .block(Duration.ofMinutes(1));
        assertEquals(90, age);
        var sum = items.queryItems("SELECT VALUE SUM(c.n) FROM c", Double.class).collectList().block(Duration.ofMinutes(1));
        assertEquals(List.of(49 * 25 + 81.0), sum);
        items.deleteItem("9", key("p2")).block(Duration.ofMinutes(1));
        refused(404, () -> items.readItem("9", key("p2"), ObjectNode.class).block(Duration.ofMinutes(1)));
    }

    @Test
    void idsWithOddCharacters() {
        CosmosContainer items = container();
        for (String id : List.of("a b", "ä€漢", "x%20y", "q+r", "'quoted'", "semi;colon,comma", "e=m&c", "[1]{2}")) {
            items.createItem(item(id, "ada"));
            assertEquals(id, items.readItem(id, key("ada"), ObjectNode.class).getItem().get("id").asText());
            items.deleteItem(id, key("ada"), null);
        }
    }

    @Test
    void keysOfEveryKind() {
        CosmosContainer items = container();
        Map<String, PartitionKey> keys = new LinkedHashMap<>();
        keys.put("'text'", key("text"));
        keys.put("1.5", new PartitionKey(1.5));
        keys.put("true", new PartitionKey(true));
        keys.put("null", new PartitionKey(null));
        keys.forEach((text, value) -> items.createItem(json("{'id': '1', 'pk': " + text + "}"), value, null));
        items.createItem(json("{'id': '1'}"), PartitionKey.NONE, null);
        keys.forEach((text, value) -> {
            ObjectNode read = items.readItem("1", value, ObjectNode.class).getItem();
            assertEquals(text.replace('\'', '"'), read.get("pk").toString());
        });
        assertFalse(items.readItem("1", PartitionKey.NONE, ObjectNode.class).getItem().has("pk"));
    }

    @Test
    void hierarchicalKeys() {
        var definition = new PartitionKeyDefinition().setKind(PartitionKind.MULTI_HASH)
            .setVersion(PartitionKeyDefinitionVersion.V2).setPaths(List.of("/tenant", "/user"));
        CosmosContainer items = container(new CosmosContainerProperties(Server.name("c"), definition));
        for (int number = 0; number < 10; number++) {
            items.createItem(json("{'id': '1', 'tenant': 't" + number % 2 + "', 'user': 'u" + number + "'}"));
        }
        PartitionKey full = new PartitionKeyBuilder().add("t1").add("u3").build();
        assertEquals("u3", items.readItem("1", full, ObjectNode.class).getItem().get("user").asText());
        PartitionKey prefix = new PartitionKeyBuilder().add("t1").build();
        var options = new CosmosQueryRequestOptions().setPartitionKey(prefix);
        assertEquals(5, Server.rows(items, "SELECT VALUE c.user FROM c", options, String.class).size());
        PartitionKey wrong = new PartitionKeyBuilder().add("t0").add("u3").build();
        refused(404, () -> items.readItem("1", wrong, ObjectNode.class));
    }

    @Test
    void patch() {
        CosmosContainer items = container();
        items.createItem(json("{'id': '1', 'pk': 'ada', 'count': 1, 'old': true, 'name': 'a', 'list': [1, 3]}"));
        CosmosPatchOperations absent = CosmosPatchOperations.create().replace("/pages", 3);
        refused(400, () -> items.patchItem("1", key("ada"), absent, ObjectNode.class));
        CosmosPatchOperations patch = CosmosPatchOperations.create()
            .add("/list/1", 2).set("/name", "b").remove("/old").increment("/count", 41L).move("/name", "/title");
        var condition = new CosmosPatchItemRequestOptions().setFilterPredicate("FROM c WHERE c.count = 1");
        condition.setContentResponseOnWriteEnabled(true);
        ObjectNode patched = items.patchItem("1", key("ada"), patch, condition, ObjectNode.class).getItem();
        ObjectNode expected = json("{'id': '1', 'pk': 'ada', 'count': 42, 'title': 'b', 'list': [1, 2, 3]}");
        assertEquals(expected, patched.retain("id", "pk", "count", "old", "name", "title", "list"));
        refused(412, () -> items.patchItem("1", key("ada"), patch, condition, ObjectNode.class));
    }

    @Test
    void aBatchIsAllOrNothing() {
        CosmosContainer items = container();
        items.createItem(item("0", "ada").put("count", 0));
        CosmosBatch batch = CosmosBatch.createCosmosBatch(key("ada"));
        batch.createItemOperation(item("1", "ada"));
        batch.upsertItemOperation(item("2", "ada"));
        batch.patchItemOperation("0", CosmosPatchOperations.create().increment("/count", 5L));
        batch.replaceItemOperation("2", item("2", "ada").put("new", true));
        batch.readItemOperation("0");
        batch.deleteItemOperation("1");
        CosmosBatchResponse done = items.executeCosmosBatch(batch);
        assertTrue(done.isSuccessStatusCode());
        assertEquals(List.of(201, 201, 200, 200, 200, 204), statuses(done));
        assertEquals(5, done.getResults().get(4).getItem(ObjectNode.class).get("count").asInt());

        CosmosBatch failing = CosmosBatch.createCosmosBatch(key("ada"));
        failing.createItemOperation(item("3", "ada"));
        failing.createItemOperation(item("2", "ada"));
        CosmosBatchResponse refused = items.executeCosmosBatch(failing);
        assertFalse(refused.isSuccessStatusCode());
        assertEquals(List.of(424, 409), statuses(refused));
        refused(404, () -> items.readItem("3", key("ada"), ObjectNode.class));
    }

    private static List<Integer> statuses(CosmosBatchResponse response) {
        return response.getResults().stream().map(result -> result.getStatusCode()).toList();
    }

    /** Two hundred writes over many keys, then every kind of operation, one of which fails alone. */
    @Test
    void bulk() {
        CosmosContainer items = container();
        List<CosmosItemOperation> creates = new ArrayList<>();
        for (int number = 0; number < 200; number++) {
            String partition = "p" + number % 11;
            creates.add(CosmosBulkOperations.getCreateItemOperation(item("" + number, partition).put("n", number), key(partition)));
        }
        assertEquals(Map.of(201, 200L), counted(items.executeBulkOperations(creates)));
        List<CosmosItemOperation> mixed = List.of(
            CosmosBulkOperations.getReadItemOperation("12", key("p1")),
            CosmosBulkOperations.getUpsertItemOperation(item("13", "p2").put("n", 0), key("p2")),
            CosmosBulkOperations.getReplaceItemOperation("14", item("14", "p3").put("n", 1), key("p3")),
            CosmosBulkOperations.getPatchItemOperation("15", key("p4"), CosmosPatchOperations.create().increment("/n", 5L)),
            CosmosBulkOperations.getDeleteItemOperation("16", key("p5")),
            CosmosBulkOperations.getCreateItemOperation(item("17", "p6"), key("p6")),
            CosmosBulkOperations.getReadItemOperation("none", key("p6")));
        assertEquals(Map.of(200, 4L, 204, 1L, 409, 1L, 404, 1L), counted(items.executeBulkOperations(mixed)));
        assertEquals(20, items.readItem("15", key("p4"), ObjectNode.class).getItem().get("n").asInt());
    }

    private static Map<Integer, Long> counted(Iterable<CosmosBulkOperationResponse<Object>> responses) {
        List<Integer> statuses = new ArrayList<>();
        for (var response : responses) {
            assertNotNull(response.getResponse(), () -> "" + response.getException());
            statuses.add(response.getResponse().getStatusCode());
        }
        return statuses.stream().collect(Collectors.groupingBy(status -> status, Collectors.counting()));
    }

    @Test
    void readMany() {
        CosmosContainer items = container();
        List<CosmosItemIdentity> wanted = new ArrayList<>();
        for (int number = 0; number < 40; number++) {
            String partition = "p" + number % 7;
            items.createItem(item("" + number, partition));
            if (number % 3 == 0) {
                wanted.add(new CosmosItemIdentity(key(partition), "" + number));
            }
        }
        wanted.add(new CosmosItemIdentity(key("p0"), "none"));
        var found = items.readMany(wanted, ObjectNode.class).getResults();
        Set<String> ids = found.stream().map(item -> item.get("id").asText()).collect(Collectors.toSet());
        assertEquals(14, found.size());
        assertTrue(ids.size() == 14 && ids.contains("39"), ids::toString);
        assertEquals(6, items.readAllItems(key("p2"), ObjectNode.class).stream().count());
    }

    @Test
    void allItemsOfAKeyAreDeleted() {
        CosmosContainer items = container();
        for (int number = 0; number < 20; number++) {
            items.createItem(item("" + number, "p" + number % 2));
        }
        items.deleteAllItemsByPartitionKey(key("p1"), new CosmosItemRequestOptions());
        assertEquals(0, items.readAllItems(key("p1"), ObjectNode.class).stream().count());
        assertEquals(10, items.readAllItems(key("p0"), ObjectNode.class).stream().count());
    }
}
