package quire;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static quire.Server.database;
import static quire.Server.item;
import static quire.Server.key;
import static quire.Server.refused;

import com.azure.cosmos.CosmosAsyncUser;
import com.azure.cosmos.CosmosClient;
import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.models.CompositePath;
import com.azure.cosmos.models.CompositePathSortOrder;
import com.azure.cosmos.models.CosmosContainerProperties;
import com.azure.cosmos.models.CosmosPermissionProperties;
import com.azure.cosmos.models.CosmosUserProperties;
import com.azure.cosmos.models.ExcludedPath;
import com.azure.cosmos.models.IncludedPath;
import com.azure.cosmos.models.IndexingPolicy;
import com.azure.cosmos.models.PermissionMode;
import com.azure.cosmos.models.SqlParameter;
import com.azure.cosmos.models.SqlQuerySpec;
import com.azure.cosmos.models.ThroughputProperties;
import com.azure.cosmos.models.UniqueKey;
import com.azure.cosmos.models.UniqueKeyPolicy;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.Test;

class ResourcesTest {
    private static final Duration DEADLINE = Duration.ofMinutes(1);

    @Test
    void databases() {
        String id = Server.name("java");
        assertEquals(201, Server.client().createDatabase(id).getStatusCode());
        refused(409, () -> Server.client().createDatabase(id));
        var query = new SqlQuerySpec("SELECT * FROM root r WHERE r.id = @id").setParameters(List.of(new SqlParameter("@id", id)));
        assertEquals(1, Server.client().queryDatabases(query, null).stream().count());
        assertTrue(Server.client().readAllDatabases().stream().anyMatch(found -> found.getId().equals(id)));
        assertEquals(204, Server.client().getDatabase(id).delete().getStatusCode());
        refused(404, () -> Server.client().getDatabase(id).read());
    }

    @Test
    void containersKeepTheirDefinition() {
        var composite = List.of(
            new CompositePath().setPath("/a").setOrder(CompositePathSortOrder.ASCENDING),
            new CompositePath().setPath("/b").setOrder(CompositePathSortOrder.DESCENDING));
        var policy = new IndexingPolicy().setIncludedPaths(List.of(new IncludedPath("/*"))).setExcludedPaths(List.of(new ExcludedPath("/blob/?"))).setCompositeIndexes(List.of(composite));
        var properties = new CosmosContainerProperties(Server.name("c"), "/pk").setDefaultTimeToLiveInSeconds(60).setIndexingPolicy(policy)
            .setUniqueKeyPolicy(new UniqueKeyPolicy().setUniqueKeys(List.of(new UniqueKey(List.of("/email")))));
        CosmosContainer items = container(properties);
        CosmosContainerProperties kept = items.read().getProperties();
        assertEquals(60, kept.getDefaultTimeToLiveInSeconds());
        assertEquals("/email", kept.getUniqueKeyPolicy().getUniqueKeys().get(0).getPaths().get(0));
        assertEquals(composite, kept.getIndexingPolicy().getCompositeIndexes().get(0));
        items.createItem(item("1", "a").put("email", "x"));
        refused(409, () -> items.createItem(item("2", "a").put("email", "x")));
        assertEquals(-1, items.replace(kept.setDefaultTimeToLiveInSeconds(-1)).getProperties().getDefaultTimeToLiveInSeconds());
        assertTrue(database().readAllContainers().stream().anyMatch(found -> found.getId().equals(items.getId())));
        assertEquals(200, database().createContainerIfNotExists(properties).getStatusCode());
        assertEquals(204, items.delete().getStatusCode());
        refused(404, items::read);
    }

    @Test
    void throughput() {
        CosmosContainer manual = container(ThroughputProperties.createManualThroughput(400));
        assertEquals(400, manual.readThroughput().getProperties().getManualThroughput());
        manual.replaceThroughput(ThroughputProperties.createManualThroughput(700));
        assertEquals(700, manual.readThroughput().getProperties().getManualThroughput());
        refused(400, () -> manual.replaceThroughput(ThroughputProperties.createManualThroughput(5)));
        CosmosContainer scaled = container(ThroughputProperties.createAutoscaledThroughput(4000));
        assertEquals(4000, scaled.readThroughput().getProperties().getAutoscaleMaxThroughput());
        scaled.replaceThroughput(ThroughputProperties.createAutoscaledThroughput(5000));
        assertEquals(5000, scaled.readThroughput().getProperties().getAutoscaleMaxThroughput());
    }

    private static CosmosContainer container(ThroughputProperties throughput) {
        String id = Server.name("c");
        database().createContainer(id, "/pk", throughput);
        return database().getContainer(id);
    }

    private static CosmosContainer container(CosmosContainerProperties properties) {
        return Server.container(properties);
    }

    /** The token of a permission opens its container, as far as it says and as long as it is there. */
    @Test
    void resourceTokens() {
        CosmosContainer items = Server.container();
        items.createItem(item("1", "ada"));
        CosmosAsyncUser ada = user("ada");
        CosmosAsyncUser grace = user("grace");
        CosmosPermissionProperties reading = permission(grace, items, PermissionMode.READ);
        CosmosPermissionProperties writing = permission(ada, items, PermissionMode.ALL);
        assertEquals(1, ada.readAllPermissions().collectList().block(DEADLINE).size());
        try (CosmosClient reader = limited(reading); CosmosClient writer = limited(writing)) {
            CosmosContainer read = reader.getDatabase(database().getId()).getContainer(items.getId());
            assertEquals("1", read.readItem("1", key("ada"), ObjectNode.class).getItem().get("id").asText());
            assertEquals(1, Server.rows(read, "SELECT * FROM c", Server.of("ada"), ObjectNode.class).size());
            refused(403, () -> read.createItem(item("2", "ada")));
            CosmosContainer written = writer.getDatabase(database().getId()).getContainer(items.getId());
            assertEquals(201, written.createItem(item("2", "ada")).getStatusCode());
            ada.getPermission("ALL").delete(null).block(DEADLINE);
            refused(403, () -> written.createItem(item("3", "ada")));
        }
    }

    private static CosmosAsyncUser user(String id) {
        database().createUser(new CosmosUserProperties().setId(id));
        return Server.asyncClient().getDatabase(database().getId()).getUser(id);
    }

    private static CosmosPermissionProperties permission(CosmosAsyncUser user, CosmosContainer items, PermissionMode mode) {
        var properties = new CosmosPermissionProperties().setId(mode.name()).setContainerName(items.getId()).setPermissionMode(mode);
        return user.createPermission(properties, null).block(DEADLINE).getProperties();
    }

    /** With `permissions` this client finds no token of its own for partition ranges, which it asks for by resource id. */
    private static CosmosClient limited(CosmosPermissionProperties permission) {
        return Server.builderWithoutKey().resourceToken(permission.getToken()).buildClient();
    }

    @Test
    void aWrongKeyIsRefused() {
        String wrong = Server.KEY.replace("C2y", "D2y");
        var error = assertThrows(RuntimeException.class, () -> Server.builder().key(wrong).buildClient());
        assertTrue(error.getMessage().contains("The wrong key is being used"), error::getMessage);
    }
}
