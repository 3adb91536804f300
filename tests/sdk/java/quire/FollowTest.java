package quire;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static quire.Server.JSON;
import static quire.Server.admin;
import static quire.Server.json;
import static quire.Server.key;
import static quire.Server.refused;
import static quire.Server.rows;
import static quire.Server.rowsByToken;

import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.CosmosDatabase;
import com.azure.cosmos.CosmosException;
import com.azure.cosmos.models.CosmosQueryRequestOptions;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** Links that queries follow, against the client's own second round trip. */
class FollowTest {
    private static final String MODEL = """
        {"version": 1, "links": [
          {"name": "book-authors", "from": {"container": "books", "path": "/authors/*/id"}, "to": {"container": "authors"}},
          {"name": "book-publisher", "from": {"container": "books", "path": "/pub/id"},
           "to": {"container": "publishers", "partitionKey": [{"path": "/pub/region"}]}},
          {"name": "sequel", "from": {"container": "books", "path": "/sequelOf"},
           "to": {"container": "books", "key": "/isbn", "partitionKey": "lookup"}}]}
        """;

    private static CosmosDatabase database;
    private static CosmosContainer books;
    private static CosmosContainer authors;
    private static CosmosContainer publishers;
    private static List<ObjectNode> own;

    /** 60 books of 9 authors and 4 publishers, some of which are not there. */
    @BeforeAll
    static void fill() throws Exception {
        String id = Server.name("java-follow");
        Server.client().createDatabase(id);
        database = Server.client().getDatabase(id);
        books = container("books", "/shelf");
        authors = container("authors", "/id");
        publishers = container("publishers", "/region");
        admin("PUT", "_quire/dbs/" + id + "/model", MODEL);
        for (int n = 0; n < 9; n++) {
            authors.createItem(json("{'id':'a" + n + "','name':'Author " + n + "','country':'" + (n % 2 == 1 ? "NZ" : "UK") + "'}"));
        }
        for (int n = 0; n < 4; n++) {
            publishers.createItem(json("{'id':'p" + n + "','region':'r" + n % 2 + "','name':'Publisher " + n + "'}"));
        }
        for (int n = 0; n < 60; n++) {
            books.createItem(json(String.format(
                "{'id':'b%02d','shelf':'s%d','year':%d,'isbn':'i%d','sequelOf':'i%d','authors':[{'id':'a%d'},{'id':'a%d'}],"
                    + "'pub':{'id':'p%d','region':'r%d'}}", n, n % 4, 1900 + n % 17, n, n / 2 + 1, n % 9, n % 11, n % 5, n % 2)));
        }
        waitUntilActive(id);
        own = byId(all(books, "SELECT * FROM b"));
        assertEquals(60, own.size());
    }

    @AfterAll
    static void delete() {
        database.delete();
    }

    private static CosmosContainer container(String id, String path) {
        database.createContainer(id, path);
        return database.getContainer(id);
    }

    private static void waitUntilActive(String id) throws Exception {
        for (int tries = 0; ; tries++) {
            JsonNode status = admin("GET", "_quire/dbs/" + id + "/model/status", "");
            boolean isActive = true;
            for (JsonNode declaration : status.get("declarations")) {
                isActive &= declaration.get("state").asText().equals("active");
            }
            if (isActive) {
                return;
            }
            assertTrue(tries < 1200, status::toString);
            Thread.sleep(50);
        }
    }

    private static List<ObjectNode> all(CosmosContainer container, String sql) {
        return rows(container, sql, new CosmosQueryRequestOptions(), ObjectNode.class);
    }

    private static List<ObjectNode> byId(List<ObjectNode> rows) {
        return rows.stream().sorted(Comparator.comparing(row -> row.get("id").asText())).toList();
    }

    /** Null for an item that is not there. */
    private static JsonNode read(CosmosContainer container, JsonNode id, JsonNode partition) {
        try {
            return container.readItem(id.asText(), key(partition.asText()), ObjectNode.class).getItem();
        } catch (CosmosException error) {
            assertEquals(404, error.getStatusCode(), error::getMessage);
            return null;
        }
    }

    private static JsonNode authorsOf(JsonNode book) {
        var found = JSON.createArrayNode();
        for (JsonNode reference : book.get("authors")) {
            JsonNode author = read(authors, reference.get("id"), reference.get("id"));
            if (author != null) {
                found.add(author);
            }
        }
        return found;
    }

    @Test
    void followIsTheSecondRoundTrip() {
        for (int size : new int[] {1, 7, 100}) {
            var many = byId(rowsByToken(books, "SELECT b.id, FOLLOW(b, 'book-authors') AS a FROM b", size, ObjectNode.class));
            var one = byId(rowsByToken(books, "SELECT b.id, FOLLOW(b, 'book-publisher') AS p FROM b", size, ObjectNode.class));
            assertEquals(own.size(), many.size());
            int missing = 0;
            for (int at = 0; at < own.size(); at++) {
                assertEquals(authorsOf(own.get(at)), many.get(at).get("a"));
                JsonNode reference = own.get(at).get("pub");
                JsonNode publisher = read(publishers, reference.get("id"), reference.get("region"));
                assertEquals(publisher, one.get(at).get("p"));
                missing += publisher == null ? 1 : 0;
            }
            assertTrue(missing > 0 && missing < own.size());
        }
    }

    @Test
    void joins() {
        List<String> expected = new ArrayList<>();
        for (JsonNode book : own) {
            for (JsonNode author : authorsOf(book)) {
                if (book.get("year").asInt() > 1905 && author.get("country").asText().equals("NZ")) {
                    expected.add(book.get("id").asText() + author.get("name").asText());
                }
            }
        }
        String sql = "SELECT b.id, a.name FROM b JOIN a IN FOLLOW(b, 'book-authors') WHERE a.country = 'NZ' AND b.year > 1905";
        var found = all(books, sql).stream().map(row -> row.get("id").asText() + row.get("name").asText());
        assertEquals(expected.stream().sorted().toList(), found.sorted().toList());
    }

    @Test
    void ordersAndAggregatesAreMerged() {
        var found = rowsByToken(
            books, "SELECT b.id, b.year, FOLLOW(b, 'book-authors') AS a FROM b ORDER BY b.year DESC", 7, ObjectNode.class);
        assertEquals(own.size(), found.size());
        int last = Integer.MAX_VALUE;
        for (ObjectNode row : found) {
            assertTrue(row.get("year").asInt() <= last);
            last = row.get("year").asInt();
            JsonNode book = own.stream().filter(other -> other.get("id").equals(row.get("id"))).findFirst().orElseThrow();
            assertEquals(authorsOf(book), row.get("a"));
        }
        int expected = own.stream().mapToInt(book -> authorsOf(book).size()).sum();
        String sql = "SELECT VALUE COUNT(1) FROM b JOIN a IN FOLLOW(b, 'book-authors')";
        assertEquals(List.of(expected), rows(books, sql, new CosmosQueryRequestOptions(), Integer.class));
    }

    @Test
    void elementsLeadToOneItem() {
        var found = all(books, "SELECT e.id AS e, FOLLOW(e, 'book-authors') AS a FROM b JOIN e IN b.authors");
        assertEquals(120, found.size());
        for (ObjectNode row : found) {
            assertEquals(read(authors, row.get("e"), row.get("e")), row.get("a"));
        }
    }

    @Test
    void referrers() {
        var found = all(authors, "SELECT a.id, REFERRERS(a, 'book-authors') AS books FROM a ORDER BY a.id");
        assertEquals(9, found.size());
        for (ObjectNode row : found) {
            var expected = JSON.createArrayNode();
            own.stream().filter(book -> book.get("authors").findValues("id").contains(row.get("id"))).forEach(expected::add);
            assertNotEquals(0, expected.size());
            assertEquals(expected, row.get("books"));
        }
        for (ObjectNode row : all(books, "SELECT b.sequelOf, FOLLOW(b, 'sequel') AS first FROM b")) {
            var expected = own.stream().filter(book -> book.get("isbn").equals(row.get("sequelOf"))).findFirst();
            assertEquals(expected.orElse(null), row.get("first"));
        }
    }

    @Test
    void linksThatCannotBeFollowedAreRefused() {
        var unknown = refused(400, () -> all(books, "SELECT FOLLOW(b, 'nothing') AS a FROM b"));
        assertTrue(unknown.getMessage().contains("SC3101"), unknown::getMessage);
        var array = refused(400, () -> all(books, "SELECT FOLLOW(b.authors, 'book-authors') AS a FROM b"));
        assertTrue(array.getMessage().contains("SC3102"), array::getMessage);
    }
}
