package quire;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static quire.Server.item;
import static quire.Server.key;

import com.azure.cosmos.ChangeFeedProcessor;
import com.azure.cosmos.ChangeFeedProcessorBuilder;
import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.models.ChangeFeedPolicy;
import com.azure.cosmos.models.ChangeFeedProcessorItem;
import com.azure.cosmos.models.ChangeFeedProcessorOptions;
import com.azure.cosmos.models.CosmosChangeFeedRequestOptions;
import com.azure.cosmos.models.CosmosContainerProperties;
import com.azure.cosmos.models.FeedRange;
import com.azure.cosmos.models.FeedResponse;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.Test;

class ChangeFeedTest {
    private static final int COUNT = 40;
    private static final Duration DEADLINE = Duration.ofMinutes(1);

    private static CosmosContainer filled() {
        CosmosContainer items = Server.container();
        for (int number = 0; number < COUNT; number++) {
            items.createItem(item("" + number, "p" + number % 6).put("n", number));
        }
        return items;
    }

    /** The ids of all changes of a feed, which ends with a page that has none, and where to go on. */
    private static String pull(CosmosContainer items, CosmosChangeFeedRequestOptions options, List<JsonNode> seen) {
        String token = null;
        for (FeedResponse<JsonNode> page : items.queryChangeFeed(options.setMaxItemCount(7), JsonNode.class).iterableByPage()) {
            seen.addAll(page.getResults());
            token = page.getContinuationToken();
        }
        return token;
    }

    private static List<String> ids(List<JsonNode> changes) {
        return changes.stream().map(change -> change.get("id").asText()).sorted().toList();
    }

    @Test
    void pulledFromTheBeginningAndOn() {
        CosmosContainer items = filled();
        List<JsonNode> seen = new ArrayList<>();
        String token = pull(items, CosmosChangeFeedRequestOptions.createForProcessingFromBeginning(FeedRange.forFullRange()), seen);
        assertEquals(COUNT, seen.size());
        assertEquals(COUNT, ids(seen).stream().distinct().count());
        items.createItem(item("new", "p1"));
        items.upsertItem(item("7", "p1").put("again", true));
        seen.clear();
        token = pull(items, CosmosChangeFeedRequestOptions.createForProcessingFromContinuation(token), seen);
        assertEquals(List.of("7", "new"), ids(seen));
        seen.clear();
        pull(items, CosmosChangeFeedRequestOptions.createForProcessingFromContinuation(token), seen);
        assertEquals(List.of(), seen);
    }

    @Test
    void pulledByRangeByKeyAndFromNow() {
        CosmosContainer items = filled();
        List<JsonNode> seen = new ArrayList<>();
        for (FeedRange range : items.getFeedRanges()) {
            pull(items, CosmosChangeFeedRequestOptions.createForProcessingFromBeginning(range), seen);
        }
        assertEquals(COUNT, ids(seen).stream().distinct().count());
        assertEquals(COUNT, seen.size());
        seen.clear();
        pull(items, CosmosChangeFeedRequestOptions.createForProcessingFromBeginning(FeedRange.forLogicalPartition(key("p1"))), seen);
        assertEquals(List.of("1", "13", "19", "25", "31", "37", "7"), ids(seen));
        seen.clear();
        String now = pull(items, CosmosChangeFeedRequestOptions.createForProcessingFromNow(FeedRange.forFullRange()), seen);
        assertEquals(List.of(), seen);
        items.createItem(item("new", "p1"));
        pull(items, CosmosChangeFeedRequestOptions.createForProcessingFromContinuation(now), seen);
        assertEquals(List.of("new"), ids(seen));
    }

    private static CosmosContainer keepingAllVersions() {
        var policy = ChangeFeedPolicy.createAllVersionsAndDeletesPolicy(Duration.ofMinutes(10));
        return Server.container(new CosmosContainerProperties(Server.name("c"), "/pk").setChangeFeedPolicy(policy));
    }

    @Test
    void allVersionsArePulled() {
        CosmosContainer items = keepingAllVersions();
        List<JsonNode> seen = new ArrayList<>();
        var options = CosmosChangeFeedRequestOptions.createForProcessingFromNow(FeedRange.forFullRange()).allVersionsAndDeletes();
        String token = pull(items, options, seen);
        writeThreeVersions(items);
        pull(items, CosmosChangeFeedRequestOptions.createForProcessingFromContinuation(token).allVersionsAndDeletes(), seen);
        List<String> operations = seen.stream().map(change -> change.get("metadata").get("operationType").asText()).toList();
        assertEquals(List.of("create", "replace", "delete"), operations);
        assertEquals(2, seen.get(2).get("previous").get("n").asInt());
    }

    private static void writeThreeVersions(CosmosContainer items) {
        items.createItem(item("1", "ada").put("n", 1));
        items.replaceItem(item("1", "ada").put("n", 2), "1", key("ada"), null);
        items.deleteItem("1", key("ada"), null);
    }

    private static CosmosContainer leases() {
        return Server.container(new CosmosContainerProperties(Server.name("leases"), "/id"));
    }

    private static ChangeFeedProcessorOptions quick() {
        return new ChangeFeedProcessorOptions().setStartFromBeginning(true).setFeedPollDelay(Duration.ofMillis(100))
            .setLeaseAcquireInterval(Duration.ofMillis(500)).setLeaseRenewInterval(Duration.ofMillis(500))
            .setLeaseExpirationInterval(Duration.ofSeconds(5)).setMaxItemCount(7);
    }

    private static ChangeFeedProcessorBuilder processor(String host, CosmosContainer items, CosmosContainer leases) {
        return new ChangeFeedProcessorBuilder().hostName(host).feedContainer(Server.async(items)).leaseContainer(Server.async(leases));
    }

    private static void eventually(BooleanSupplier holds) throws InterruptedException {
        long end = System.nanoTime() + DEADLINE.toNanos();
        while (!holds.getAsBoolean() && System.nanoTime() < end) {
            Thread.sleep(50);
        }
        assertTrue(holds.getAsBoolean());
    }

    /** Every item reaches the handler; a processor that is started again goes on where its leases are. */
    @Test
    void theProcessor() throws Exception {
        CosmosContainer items = filled();
        CosmosContainer leases = leases();
        Map<String, Integer> seen = new ConcurrentHashMap<>();
        ChangeFeedProcessor first = processor("first", items, leases).options(quick())
            .handleLatestVersionChanges(changes -> count(changes, seen)).buildChangeFeedProcessor();
        first.start().block(DEADLINE);
        eventually(() -> seen.size() == COUNT);
        assertEquals(Server.PARTITIONS, first.getCurrentState().block(DEADLINE).size());
        items.createItem(item("new", "p3"));
        eventually(() -> seen.containsKey("new"));
        eventually(() -> first.getCurrentState().block(DEADLINE).stream().allMatch(state -> state.getEstimatedLag() == 0));
        first.stop().block(DEADLINE);

        items.createItem(item("meanwhile", "p4"));
        ChangeFeedProcessor second = processor("second", items, leases).options(quick())
            .handleLatestVersionChanges(changes -> count(changes, seen)).buildChangeFeedProcessor();
        second.start().block(DEADLINE);
        eventually(() -> seen.containsKey("meanwhile"));
        second.stop().block(DEADLINE);
        assertEquals(Map.of(1, COUNT + 2L), histogram(seen), "each change once: no lease was lost");
    }

    private static void count(List<ChangeFeedProcessorItem> changes, Map<String, Integer> seen) {
        changes.forEach(change -> seen.merge(change.getCurrent().get("id").asText(), 1, Integer::sum));
    }

    private static Map<Integer, Long> histogram(Map<String, Integer> seen) {
        return seen.values().stream().collect(java.util.stream.Collectors.groupingBy(times -> times, java.util.stream.Collectors.counting()));
    }

    /** Two hosts share the leases, and one has them all when the other has stopped. */
    @Test
    void twoProcessorsShareTheFeed() throws Exception {
        CosmosContainer items = filled();
        CosmosContainer leases = leases();
        Map<String, Integer> seen = new ConcurrentHashMap<>();
        List<ChangeFeedProcessor> both = new ArrayList<>();
        for (String host : List.of("a", "b")) {
            both.add(processor(host, items, leases).options(quick())
                .handleLatestVersionChanges(changes -> count(changes, seen)).buildChangeFeedProcessor());
        }
        for (ChangeFeedProcessor one : both) {
            one.start().block(DEADLINE);
        }
        eventually(() -> seen.size() == COUNT);
        if (Server.PARTITIONS > 1) {
            eventually(() -> owners(leases) == 2);
        }
        both.get(0).stop().block(DEADLINE);
        items.createItem(item("late", "p1"));
        items.createItem(item("later", "p2"));
        eventually(() -> seen.containsKey("late") && seen.containsKey("later") && owners(leases) == 1);
        both.get(1).stop().block(DEADLINE);
    }

    private static int owners(CosmosContainer leases) {
        String sql = "SELECT DISTINCT VALUE c.Owner FROM c WHERE IS_STRING(c.Owner) AND c.Owner != ''";
        return Server.rows(leases, sql, new com.azure.cosmos.models.CosmosQueryRequestOptions(), String.class).size();
    }

    @Test
    void theProcessorOfAllVersions() throws Exception {
        CosmosContainer items = keepingAllVersions();
        List<String> seen = java.util.Collections.synchronizedList(new ArrayList<>());
        ChangeFeedProcessor processor = processor("all", items, leases()).options(quick().setStartFromBeginning(false))
            .handleAllVersionsAndDeletesChanges(changes ->
                changes.forEach(change -> seen.add(change.getChangeFeedMetaData().getOperationType().toString())))
            .buildChangeFeedProcessor();
        processor.start().block(DEADLINE);
        eventually(() -> processor.getCurrentState().block(DEADLINE).size() == Server.PARTITIONS);
        Thread.sleep(2000);
        writeThreeVersions(items);
        eventually(() -> seen.size() == 3);
        processor.stop().block(DEADLINE);
        assertEquals(List.of("create", "replace", "delete"), seen.stream().map(String::toLowerCase).toList());
    }
}
