package quire;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static quire.Server.item;
import static quire.Server.key;

import com.azure.cosmos.CosmosClient;
import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.CosmosException;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.junit.jupiter.api.Test;

/** The default of this client is direct mode, which the server refuses with what to do. */
class DirectModeTest {
    @Test
    void theErrorSaysWhatToChange() {
        CosmosContainer items = Server.container();
        items.createItem(item("1", "ada"));
        try (CosmosClient direct = Server.builder().directMode().buildClient()) {
            CosmosContainer seen = direct.getDatabase(Server.database().getId()).getContainer(items.getId());
            CosmosException error = assertThrows(CosmosException.class, () -> seen.readItem("1", key("ada"), ObjectNode.class));
            assertEquals(400, error.getStatusCode());
            assertTrue(error.getShortMessage().contains("use ConnectionMode.Gateway (.NET) or gatewayMode() (Java)"), error::getShortMessage);
        }
    }
}
