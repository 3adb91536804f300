/// <reference path="quire.d.ts" />

// Stored procedure: creates many items of one logical partition, as many as there is time for.
//
// Call it with an array of items. It answers how many were created; call it again with the rest until none is left. What
// one call creates is one transaction: an item that cannot be created (400, sub-status 409 if it is there
// already) takes the others of that call back.

/** @param {object[]} items */
function bulkImport(items) {
  const collection = getContext().getCollection();
  let count = 0;
  answer();
  next();

  function next() {
    if (count === items.length) return;
    // Refused, not failed: what was accepted before is committed, and the client sends the rest again.
    collection.createDocument(collection.getSelfLink(), items[count], (error) => {
      if (error) throw error;
      count += 1;
      answer();
      next();
    });
  }

  function answer() {
    getContext().getResponse().setBody(count);
  }
}
