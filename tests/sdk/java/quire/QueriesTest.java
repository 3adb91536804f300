package quire;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static quire.Server.refused;
import static quire.Server.rows;
import static quire.Server.rowsByToken;

import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.models.CosmosQueryRequestOptions;
import com.azure.cosmos.models.FeedResponse;
import com.azure.cosmos.models.SqlParameter;
import com.azure.cosmos.models.SqlQuerySpec;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.Comparator;
import java.util.HashSet;
import java.util.List;
import java.util.stream.IntStream;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** Items 0 to 59 in six logical partitions: n counts, g is n modulo 4, and every third has a name. */
class QueriesTest {
    private static final int COUNT = 60;
    private static final List<Integer> ALL = IntStream.range(0, COUNT).boxed().toList();
    private static final List<Integer> FALLING = ALL.stream().sorted(Comparator.reverseOrder()).toList();
    private static CosmosContainer items;

    @BeforeAll
    static void fill() {
        items = Server.container();
        for (int number : ALL) {
            ObjectNode item = Server.item("" + number, "p" + number % 6).put("n", number).put("g", number % 4);
            items.createItem(number % 3 == 0 ? item.put("name", "x" + number % 2) : item);
        }
    }

    private static List<Integer> numbers(String sql) {
        return rows(items, sql, new CosmosQueryRequestOptions(), Integer.class);
    }

    private static List<String> groups(String sql, CosmosQueryRequestOptions options) {
        return rows(items, sql, options, ObjectNode.class).stream().map(JsonNode::toString).sorted().toList();
    }

    @Test
    void queriesOfOneKey() {
        List<Integer> numbers = ALL.stream().filter(number -> number % 6 == 2).toList();
        var p2 = Server.of("p2");
        assertEquals(numbers, rows(items, "SELECT VALUE c.n FROM c ORDER BY c.n", p2, Integer.class));
        assertEquals(numbers.subList(2, 7), rows(items, "SELECT VALUE c.n FROM c ORDER BY c.n OFFSET 2 LIMIT 5", p2, Integer.class));
        assertEquals(numbers.subList(0, 4), rows(items, "SELECT TOP 4 VALUE c.n FROM c ORDER BY c.n", p2, Integer.class));
        assertEquals(List.of(0, 2), rows(items, "SELECT DISTINCT VALUE c.g FROM c", p2, Integer.class).stream().sorted().toList());
        assertEquals(List.of(10), rows(items, "SELECT VALUE COUNT(1) FROM c", p2, Integer.class));
        assertEquals(List.of(290.0), rows(items, "SELECT VALUE SUM(c.n) FROM c", p2, Double.class));
        assertEquals(
            List.of("{\"g\":0,\"count\":5,\"most\":56}", "{\"g\":2,\"count\":5,\"most\":50}"),
            groups("SELECT c.g, COUNT(1) AS count, MAX(c.n) AS most FROM c GROUP BY c.g", p2));
    }

    @Test
    void orderByOverAllKeys() {
        assertEquals(ALL, numbers("SELECT VALUE c.n FROM c ORDER BY c.n"));
        assertEquals(FALLING, numbers("SELECT VALUE c.n FROM c ORDER BY c.n DESC"));
        assertEquals(ALL, rowsByToken(items, "SELECT VALUE c.n FROM c ORDER BY c.n", 11, Integer.class));
        assertEquals(FALLING, rowsByToken(items, "SELECT VALUE c.n FROM c ORDER BY c.n DESC", 1000, Integer.class));
        assertEquals(ALL.subList(0, 9), rowsByToken(items, "SELECT VALUE c.n FROM c WHERE c.n < 9 ORDER BY c.n", 1, Integer.class));
    }

    /** Fifteen items share each value: none is lost or repeated when the order is resumed among them. */
    @Test
    void tiesAreResumed() {
        for (String direction : List.of("ASC", "DESC")) {
            var found = rowsByToken(items, "SELECT c.g, c.n FROM c ORDER BY c.g " + direction, 4, ObjectNode.class);
            assertEquals(COUNT, new HashSet<>(found).size());
            assertEquals(COUNT, found.size());
            var order = Comparator.comparing((ObjectNode row) -> row.get("g").asInt());
            assertEquals(found, found.stream().sorted(direction.equals("ASC") ? order : order.reversed()).toList());
        }
    }

    @Test
    void missingValuesComeFirst() {
        List<JsonNode> found = rows(items, "SELECT c.name FROM c ORDER BY c.name", new CosmosQueryRequestOptions(), JsonNode.class);
        assertEquals(COUNT, found.size());
        assertTrue(found.subList(0, 40).stream().noneMatch(row -> row.has("name")));
        assertEquals("x1", found.get(59).get("name").asText());
    }

    @Test
    void topOffsetAndLimit() {
        assertEquals(ALL.subList(0, 5), numbers("SELECT TOP 5 VALUE c.n FROM c ORDER BY c.n"));
        assertEquals(ALL.subList(7, 20), numbers("SELECT VALUE c.n FROM c ORDER BY c.n OFFSET 7 LIMIT 13"));
        assertEquals(13, numbers("SELECT VALUE c.n FROM c OFFSET 7 LIMIT 13").size());
        assertEquals(List.of(), numbers("SELECT VALUE c.n FROM c ORDER BY c.n OFFSET 100 LIMIT 13"));
    }

    @Test
    void distinct() {
        assertEquals(List.of(0, 1, 2, 3), numbers("SELECT DISTINCT VALUE c.g FROM c").stream().sorted().toList());
        assertEquals(List.of(0, 1, 2, 3), numbers("SELECT DISTINCT VALUE c.g FROM c ORDER BY c.g"));
        assertEquals(12, rows(items, "SELECT DISTINCT c.g, c.pk FROM c", new CosmosQueryRequestOptions(), ObjectNode.class).size());
    }

    /** No client can merge their rows; the plan makes this one ask for all of them at once. */
    @Test
    void subqueriesOverAllItems() {
        assertEquals(List.of(0, 1, 2, 3), numbers("SELECT VALUE r FROM (SELECT DISTINCT VALUE c.g FROM c) AS r").stream().sorted().toList());
        assertEquals(List.of(15, 15, 15, 15), numbers("SELECT VALUE s.k FROM (SELECT c.g, COUNT(1) AS k FROM c GROUP BY c.g) AS s WHERE s.k > 10"));
        assertEquals(List.of(59), numbers("SELECT VALUE s.m FROM (SELECT MAX(c.n) AS m FROM c) AS s"));
        assertEquals(COUNT, numbers("SELECT VALUE r.n FROM (SELECT DISTINCT VALUE root FROM root) AS r").size());
    }

    @Test
    void aggregates() {
        assertEquals(List.of(COUNT), numbers("SELECT VALUE COUNT(1) FROM c"));
        // This client adds sums up in doubles.
        assertEquals(List.of(1770.0), rows(items, "SELECT VALUE SUM(c.n) FROM c", new CosmosQueryRequestOptions(), Double.class));
        assertEquals(List.of(5), numbers("SELECT VALUE MIN(c.n) FROM c WHERE c.n > 4"));
        assertEquals(List.of(59), numbers("SELECT VALUE MAX(c.n) FROM c"));
        assertEquals(List.of(29.5), rows(items, "SELECT VALUE AVG(c.n) FROM c", new CosmosQueryRequestOptions(), Double.class));
        var several = rows(items, "SELECT COUNT(1) AS count, AVG(c.n) AS mean FROM c", new CosmosQueryRequestOptions(), ObjectNode.class);
        assertEquals(29.5, several.get(0).get("mean").asDouble());
        assertEquals(COUNT, several.get(0).get("count").asInt());
    }

    @Test
    void groupBy() {
        List<String> expected = IntStream.range(0, 4)
            .mapToObj(g -> "{\"g\":" + g + ",\"count\":15,\"sum\":" + (420.0 + 15 * g) + "}").toList();
        String sql = "SELECT c.g, COUNT(1) AS count, SUM(c.n) AS sum FROM c GROUP BY c.g";
        assertEquals(expected, groups(sql, new CosmosQueryRequestOptions()));
        assertEquals(12, groups("SELECT c.g, c.pk FROM c GROUP BY c.g, c.pk", new CosmosQueryRequestOptions()).size());
    }

    @Test
    void parametersAndMetrics() {
        var query = new SqlQuerySpec("SELECT VALUE c.n FROM c WHERE c.n >= @low AND ARRAY_CONTAINS(@groups, c.g)")
            .setParameters(List.of(new SqlParameter("@low", 40), new SqlParameter("@groups", List.of(1, 3))));
        var options = new CosmosQueryRequestOptions().setQueryMetricsEnabled(true).setIndexMetricsEnabled(true);
        List<FeedResponse<Integer>> pages = items.queryItems(query, options, Integer.class).streamByPage().toList();
        assertEquals(10, pages.stream().mapToInt(page -> page.getResults().size()).sum());
        assertTrue(pages.get(0).getRequestCharge() > 0);
        assertNotNull(pages.get(0).getCosmosDiagnostics());
    }

    @Test
    void queriesOfFeedRanges() {
        var ranges = items.getFeedRanges();
        assertEquals(Server.PARTITIONS, ranges.size());
        var found = ranges.stream().flatMap(range ->
            rows(items, "SELECT VALUE c.n FROM c", new CosmosQueryRequestOptions().setFeedRange(range), Integer.class).stream());
        assertEquals(ALL, found.sorted().toList());
    }

    /** The pages of several partitions arrive as they come and have every row once. */
    @Test
    void queriesInParallel() {
        var options = new CosmosQueryRequestOptions().setMaxDegreeOfParallelism(-1);
        var found = Server.async(items).queryItems("SELECT VALUE c.n FROM c WHERE c.n >= 10", options, Integer.class)
            .byPage(7).flatMapIterable(FeedResponse::getResults).collectList().block(Duration.ofMinutes(1));
        assertEquals(ALL.subList(10, COUNT), found.stream().sorted().toList());
    }

    @Test
    void badQueriesAreRefused() {
        var error = refused(400, () -> numbers("SELEC * FROM c"));
        assertTrue(error.getMessage().contains("SC1001"), error::getMessage);
    }
}
