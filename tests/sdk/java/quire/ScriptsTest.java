package quire;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static quire.Server.item;
import static quire.Server.key;
import static quire.Server.refused;

import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.CosmosScripts;
import com.azure.cosmos.CosmosStoredProcedure;
import com.azure.cosmos.models.CosmosItemRequestOptions;
import com.azure.cosmos.models.CosmosQueryRequestOptions;
import com.azure.cosmos.models.CosmosStoredProcedureProperties;
import com.azure.cosmos.models.CosmosStoredProcedureRequestOptions;
import com.azure.cosmos.models.CosmosTriggerProperties;
import com.azure.cosmos.models.CosmosUserDefinedFunctionProperties;
import com.azure.cosmos.models.TriggerOperation;
import com.azure.cosmos.models.TriggerType;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.List;
import org.junit.jupiter.api.Test;

class ScriptsTest {
    private static final String TWO_ITEMS = """
        function two(first, second) {
            console.log('adding ' + first);
            const items = __, made = id => ({ id: id, pk: 'ada' });
            items.createDocument(items.getSelfLink(), made(first), function (error) {
                if (error) throw error;
                items.createDocument(items.getSelfLink(), made(second), function (error) {
                    if (error) throw error;
                    getContext().getResponse().setBody([first, second]);
                });
            });
        }""";

    /** A procedure commits both items or none. */
    @Test
    void procedures() {
        CosmosContainer items = Server.container();
        CosmosScripts scripts = items.getScripts();
        scripts.createStoredProcedure(new CosmosStoredProcedureProperties("two", TWO_ITEMS));
        assertEquals(1, scripts.readAllStoredProcedures().stream().count());
        CosmosStoredProcedure two = scripts.getStoredProcedure("two");
        assertEquals(TWO_ITEMS, two.read().getProperties().getBody());
        var ada = new CosmosStoredProcedureRequestOptions().setPartitionKey(key("ada")).setScriptLoggingEnabled(true);
        var done = two.execute(List.of("1", "2"), ada);
        assertEquals("[\"1\",\"2\"]", done.getResponseAsString());
        assertEquals("adding 1", done.getScriptLog());
        assertTrue(done.getRequestCharge() > 0);
        refused(400, () -> two.execute(List.of("3", "1"), ada));
        refused(404, () -> items.readItem("3", key("ada"), ObjectNode.class));
        assertEquals(2, items.readAllItems(key("ada"), ObjectNode.class).stream().count());
        two.replace(two.read().getProperties().setBody("function two() { getContext().getResponse().setBody(2); }"));
        assertEquals("2", two.execute(List.of(), ada).getResponseAsString());
        two.delete();
        refused(404, two::read);
    }

    @Test
    void triggers() {
        CosmosContainer items = Server.container();
        String body = "function stamp() { const r = getContext().getRequest(), b = r.getBody(); b.stamped = true; r.setBody(b); }";
        items.getScripts().createTrigger(new CosmosTriggerProperties("stamp", body)
            .setTriggerType(TriggerType.PRE).setTriggerOperation(TriggerOperation.CREATE));
        items.createItem(item("1", "ada"), new CosmosItemRequestOptions().setPreTriggerInclude(List.of("stamp")));
        items.createItem(item("2", "ada"));
        assertTrue(items.readItem("1", key("ada"), ObjectNode.class).getItem().get("stamped").asBoolean());
        assertTrue(!items.readItem("2", key("ada"), ObjectNode.class).getItem().has("stamped"));
    }

    @Test
    void functionsInQueries() {
        CosmosContainer items = Server.container();
        items.getScripts().createUserDefinedFunction(new CosmosUserDefinedFunctionProperties("twice", "function twice(n) { return 2 * n; }"));
        for (int number = 0; number < 10; number++) {
            items.createItem(item("" + number, "p" + number).put("n", number));
        }
        var found = Server.rows(items, "SELECT VALUE udf.twice(c.n) FROM c WHERE udf.twice(c.n) > 9", new CosmosQueryRequestOptions(), Integer.class);
        assertEquals(List.of(10, 12, 14, 16, 18), found.stream().sorted().toList());
    }
}
