/// <reference path="quire.d.ts" />

// Stored procedure: deletes what a query finds in one logical partition, as much as there is time for.
//
// Call it with a query that gives whole items, such as "SELECT * FROM c WHERE c.year < 1990". It answers
// { deleted, continuation }: call it again while `continuation` is true.

/** @param {string} query */
function bulkDelete(query) {
  const collection = getContext().getCollection();
  const answer = { deleted: 0, continuation: true };
  getContext().getResponse().setBody(answer); // by reference: what it is at the end is sent
  page(undefined);

  // Queries see the state before the transaction, so a continuation goes on where the last page ended.
  function page(continuation) {
    collection.queryDocuments(collection.getSelfLink(), query, { continuation }, (error, items, options) => {
      if (error) throw error;
      remove(items, options.continuation);
    });
  }

  function remove(items, continuation) {
    if (items.length > 0) {
      collection.deleteDocument(items[0]._self, {}, (error) => {
        if (error) throw error;
        answer.deleted += 1;
        remove(items.slice(1), continuation);
      });
    } else if (continuation) {
      page(continuation);
    } else {
      answer.continuation = false;
    }
  }
}
